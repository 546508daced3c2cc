#pragma once
// Each collective as the benchmarks run it: its buffers, its calls, its right answer, its bandwidth
// factor.
//
// `count` is what nccl-tests prints under that name: the elements that one rank contributes or
// receives; the size of a row is the larger of the send and the receive buffer. The factors turn
// algbw into busbw (nccl-tests: doc/PERFORMANCE.md).
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/engine/operation.h"
#include "core/base/types.h"
#include "device/host/shared_pool.h"

namespace hccl_like::bench {

struct Shape {
  Collective collective;  // kSend stands for send and receive together
  bool send_shares;       // the send buffer holds one count for every rank rather than one count
  bool receive_shares;
  bool reduces;
  bool rooted;
  bool in_place;  // has that form besides the one out of place
  double (*factor)(int ranks);

  bool shared() const { return send_shares || receive_shares; }
};

// By the name on the command line; the name is one of kCollectiveNames.
const Shape& shape(std::string_view name);

// One row, seen from one rank.
struct Case {
  int rank;
  int ranks;
  size_t count;
  DataType type;
  ReduceOp op;
  int root;
};

// Calls of one rank for one operation: one call, or a send and a receive. With `shared`, the host's
// device, peers can map the buffers and the calls say so, as process_group does for a device's
// memory.
std::vector<Call> calls_of(const Shape& shape, const Case& row, std::span<std::byte> send,
                           std::span<std::byte> receive, const Device* shared);

// Owns the buffers of one form of one row.
class Buffers {
 public:
  // `shared`: as in calls_of().
  Buffers(const Shape& shape, const Case& row, bool in_place, const Device* shared = nullptr);

  std::span<std::byte> send() const { return send_; }
  std::span<std::byte> receive() const { return receive_; }
  std::vector<Call> calls() const { return calls_of(shape_, row_, send_, receive_, shared_); }
  // Input in place, output spoilt.
  void prepare(int salt);
  // As an owner does between two operations: writes its input and its output, small finite numbers
  // in every type.
  void rewrite();
  // Counts the wrong elements of this rank after an operation on what prepare(salt) wrote.
  size_t count_wrong(int salt) const;

 private:
  struct Free {
    bool pooled = false;
    void operator()(std::byte* memory) const {
      if (pooled)
        SharedPool::of_process().free(memory);
      else
        std::free(memory);
    }
  };
  std::span<std::byte> allocate(size_t bytes);
  std::span<std::byte> share(std::span<std::byte> whole, int rank) const;
  void fill_input(int salt);

  Shape shape_;
  Case row_;
  const Device* shared_;
  size_t element_;
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::span<std::byte> send_;
  std::span<std::byte> receive_;
};

}  // namespace hccl_like::bench

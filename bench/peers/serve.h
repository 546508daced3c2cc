#pragma once
// Shared part of the programs that measure other libraries. One process for each rank stays alive,
// waits in the kernel for a line that names a row, runs the row and answers with a line. So a
// benchmark can measure many libraries in turns, row by row, without paying for their start each
// time.
//
//   request   all_reduce float 65536 20 300 1    collective, type, bytes of the larger buffer,
//                                                warm-up, iterations, batch
//   answer    ok 12.5 11.9 14.2 0                median, least and 99th percentile in
//                                                microseconds, wrong elements
//             no <reason>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hccl_like::bench {

struct Request {
  std::string collective;
  std::string type;  // float or bfloat16
  size_t bytes = 0;
  int warmup = 0;
  int iterations = 0;
  // Operations under one reading of the clock; the rewriting between them is timed, too.
  int batch = 1;
};

// Allocator of buffers. Buffers are whole pages, zeroed and touched.
struct Memory {
  std::function<void*(size_t bytes)> allocate;
  std::function<void(void* memory)> free;

  static Memory of_malloc();
};

// The buffers of one row on one rank. The same memory twice for what is done in place (all_reduce,
// broadcast).
class PeerBuffers {
 public:
  PeerBuffers(const Request& request, int rank, int ranks, const Memory& memory);
  ~PeerBuffers();
  PeerBuffers(const PeerBuffers&) = delete;
  PeerBuffers& operator=(const PeerBuffers&) = delete;

  std::byte* send() const { return send_; }
  std::byte* receive() const { return receive_; }
  size_t sent_bytes() const { return sent_ * element_; }
  size_t received_bytes() const { return received_ * element_; }
  // Elements that one rank contributes or receives, as nccl-tests counts.
  size_t count() const { return count_; }
  // The owner writes its input, which is rank + 1 throughout, and its output.
  void rewrite();
  // Elements of the output that are not the result.
  size_t count_wrong() const;

 private:
  std::byte* allocate(size_t bytes) const;
  template <class T, class Encode>
  void write(Encode encode);
  template <class T, class Encode>
  size_t wrong(Encode encode) const;
  int expected(size_t position) const;

  Request request_;
  const Memory& memory_;
  int rank_, ranks_;
  size_t element_, count_, sent_, received_;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
};

// Makes what runs one operation of a row; throws std::invalid_argument if the library has no such
// operation.
using MakeOperation =
    std::function<std::function<void()>(const Request& request, const PeerBuffers& buffers)>;

// Serves until it is told to quit. `folder` holds the pipes in.<rank> and out.<rank> and the place
// where ranks meet.
void serve(const std::string& folder, int rank, int ranks, const MakeOperation& make,
           const Memory& memory = Memory::of_malloc());

// The main function of a program whose ranks are started one by one: PROGRAM FOLDER RANK RANKS.
// Library is made of these, and has a MakeOperation `make`.
template <class Library>
int serve_rank(int argc, char** argv) {
  if (argc < 4) return 2;
  const int rank = std::stoi(argv[2]), ranks = std::stoi(argv[3]);
  Library library(argv[1], rank, ranks);
  serve(argv[1], rank, ranks, [&](const Request& request, const PeerBuffers& buffers) {
    return library.make(request, buffers);
  });
  return 0;
}

}  // namespace hccl_like::bench

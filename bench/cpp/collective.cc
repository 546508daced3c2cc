#include "bench/cpp/collective.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "bench/cpp/inputs.h"
#include "bench/cpp/move.h"
#include "device/host/host_ipc.h"

namespace hccl_like::bench {
namespace {

double whole(int) { return 1.0; }
double fraction(int ranks) { return (ranks - 1.0) / ranks; }
double twice(int ranks) { return 2.0 * (ranks - 1.0) / ranks; }

constexpr std::array<std::pair<std::string_view, Shape>, 10> kShapes{{
    // collective, send shares, receive shares, reduces, rooted, in place, factor
    {"all_reduce", {Collective::kAllReduce, false, false, true, false, true, twice}},
    {"all_gather", {Collective::kAllGather, false, true, false, false, true, fraction}},
    {"reduce_scatter", {Collective::kReduceScatter, true, false, true, false, true, fraction}},
    {"alltoall", {Collective::kAllToAll, true, true, false, false, false, fraction}},
    {"broadcast", {Collective::kBroadcast, false, false, false, true, true, whole}},
    {"reduce", {Collective::kReduce, false, false, true, true, true, whole}},
    {"gather", {Collective::kGather, false, true, false, true, true, fraction}},
    {"scatter", {Collective::kScatter, true, false, false, true, true, fraction}},
    {"sendrecv", {Collective::kSend, false, false, false, false, false, whole}},
    {"barrier", {Collective::kBarrier, false, false, false, false, false, whole}},
}};

Region region(std::span<std::byte> bytes) { return {bytes.data(), bytes.size()}; }

// As if nobody else could see the buffers.
std::vector<Call> private_calls(const Shape& shape, const Case& row, Region send, Region receive) {
  const size_t element = size_of(row.type);
  const auto ranks = static_cast<size_t>(row.ranks);
  const auto me = static_cast<size_t>(row.rank);
  const bool root = row.rank == row.root;
  Call call{.collective = shape.collective,
            .type = row.type,
            .op = row.op,
            .factor = kFactor,
            .root = std::max(row.root, 0)};
  const auto single = [&](Region part) { return Layout::single(std::span(&part, 1), me, element); };
  switch (shape.collective) {
    case Collective::kBarrier:
      return {call};
    case Collective::kAllGather:
    case Collective::kGather:
      call.input = single(send);
      if (shape.collective == Collective::kAllGather || root)
        call.output = Layout::even(receive, ranks, element);
      return {call};
    case Collective::kReduceScatter:
    case Collective::kScatter:
      if (shape.collective == Collective::kReduceScatter || root)
        call.input = Layout::even(send, ranks, element);
      call.output = single(receive);
      return {call};
    case Collective::kAllToAll:
      call.input = Layout::even(send, ranks, element);
      call.output = Layout::even(receive, ranks, element);
      return {call};
    case Collective::kSend: {  // round the ring: to the next rank, from the one before
      Call other = call;
      call.root = (row.rank + 1) % row.ranks;
      call.input = Layout::even(send, 1, element);
      other.collective = Collective::kRecv;
      other.root = (row.rank + row.ranks - 1) % row.ranks;
      other.output = Layout::even(receive, 1, element);
      return {call, other};
    }
    default:
      call.input = Layout::even(send, 1, element);
      call.output = Layout::even(receive, 1, element);
      return {call};
  }
}

}  // namespace

std::vector<Call> calls_of(const Shape& shape, const Case& row, std::span<std::byte> send,
                           std::span<std::byte> receive, const Device* shared) {
  std::vector<Call> calls = private_calls(shape, row, region(send), region(receive));
  if (shared == nullptr) return calls;
  for (Call& call : calls) {
    const bool reads = call.input.total_bytes() > 0, writes = call.output.total_bytes() > 0;
    if (reads || writes) call.device = shared;
    if (reads) call.shared_input = shared_range(send.data(), send.size());
    if (writes) call.shared_output = shared_range(receive.data(), receive.size());
  }
  return calls;
}

const Shape& shape(std::string_view name) {
  return std::ranges::find(kShapes, name, &std::pair<std::string_view, Shape>::first)->second;
}

Buffers::Buffers(const Shape& shape, const Case& row, bool in_place, const Device* shared)
    : shape_(shape), row_(row), shared_(shared), element_(size_of(row.type)) {
  const size_t one = row.count * element_, all = one * static_cast<size_t>(row.ranks);
  const size_t send = shape.send_shares ? all : one, receive = shape.receive_shares ? all : one;
  const bool owns_whole = !shape.rooted || row.rank == row.root;
  if (!in_place || (send != receive && !owns_whole)) {
    send_ = allocate(send);
    receive_ = allocate(receive);
    return;
  }
  const std::span<std::byte> both = allocate(std::max(send, receive));
  const bool equal = send == receive;
  send_ = equal || shape.send_shares ? both : share(both, row.rank);
  receive_ = equal || shape.receive_shares ? both : share(both, row.rank);
}

std::span<std::byte> Buffers::allocate(size_t bytes) {
  constexpr size_t kAlignment = 4096;
  const size_t rounded = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  const bool pooled = shared_ != nullptr;
  auto* memory = static_cast<std::byte*>(pooled ? SharedPool::of_process().allocate(rounded)
                                                : std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  memory_.push_back({memory, Free{pooled}});
  std::memset(memory, 0, rounded);  // touched before anything is timed
  return {memory, bytes};
}

std::span<std::byte> Buffers::share(std::span<std::byte> all, int rank) const {
  const size_t one = row_.count * element_;
  return all.subspan(static_cast<size_t>(rank) * one, one);
}

void Buffers::fill_input(int salt) { fill(send_, row_.type, row_.op, row_.rank, row_.ranks, salt); }

void Buffers::prepare(int salt) {
  std::ranges::fill(receive_, std::byte{0x55});
  fill_input(salt);
}

void Buffers::rewrite() {
  const uint32_t pattern = row_.type == DataType::kBool ? 0x01010101 : 0x3f803f80;
  if (receive_.data() != send_.data()) overwrite(receive_, pattern);
  overwrite(send_, pattern);
}

size_t Buffers::count_wrong(int salt) const {
  if (shape_.collective == Collective::kBarrier) return 0;
  const auto& [rank, ranks, count, type, op, root] = row_;
  const bool at_root_only =
      shape_.collective == Collective::kReduce || shape_.collective == Collective::kGather;
  if (at_root_only && rank != root) return 0;
  std::vector<std::byte> expected(receive_.size());
  const size_t first = shape_.send_shares ? static_cast<size_t>(rank) * count
                                          : 0;  // my share of each sender's buffer
  if (shape_.reduces) {
    fill_reduced(expected, type, op, ranks, salt, first);
  } else if (shape_.receive_shares) {
    for (int from = 0; from < ranks; ++from)
      fill_from(share(expected, from), type, op, from, ranks, salt, first);
  } else {
    const int from = shape_.rooted ? root : (rank + ranks - 1) % ranks;
    fill_from(expected, type, op, from, ranks, salt, first);
  }
  const bool averaged = op == ReduceOp::kAvg && (ranks & (ranks - 1)) != 0;
  return bench::count_wrong(receive_, expected, type, averaged);
}

}  // namespace hccl_like::bench

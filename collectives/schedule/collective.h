#pragma once
// The collectives, and what each of them means: which chunk of whose input becomes part of which
// chunk of whose output. The board, large calls of one host and schedules all take it from here.
#include <cstdint>
#include <optional>
#include <string_view>

namespace hccl_like {

enum class Collective : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kRecv,
};
inline constexpr int kCollectives = 11;

// As PyTorch spells it: "all_reduce", "reduce_scatter", ...
std::string_view name(Collective collective);
// The collective with that name; also by its other names in PyTorch ("all_gather_into_tensor"), and
// in MPI's and NCCL's spelling
// ("allreduce").
std::optional<Collective> collective_named(std::string_view wanted);

// How a rank's input or output is divided.
enum class Chunking : uint8_t {
  kWhole,    // one chunk, which concerns every rank; its number is 0
  kOwn,      // one chunk, which has the number of the rank
  kPerRank,  // one chunk for each rank
};

struct Semantics {
  Chunking input = Chunking::kWhole;
  Chunking output = Chunking::kWhole;
  bool reduces = false;    // combines what the ranks give
  bool from_root = false;  // the root alone gives
  bool to_root = false;    // the root alone receives
};

constexpr Semantics semantics(Collective collective) {
  using enum Collective;
  using enum Chunking;
  switch (collective) {
    case kAllReduce:
      return {.reduces = true};
    case kReduce:
      return {.reduces = true, .to_root = true};
    case kReduceScatter:
      return {.input = kPerRank, .output = kOwn, .reduces = true};
    case kBroadcast:
      return {.from_root = true};
    case kAllGather:
      return {.input = kOwn, .output = kPerRank};
    case kGather:
      return {.input = kOwn, .output = kPerRank, .to_root = true};
    case kScatter:
      return {.input = kPerRank, .output = kOwn, .from_root = true};
    case kAllToAll:
      return {.input = kPerRank, .output = kPerRank};
    case kBarrier:
    case kSend:
    case kRecv:
      break;
  }
  return {};
}

constexpr bool reduces(Collective collective) { return semantics(collective).reduces; }

constexpr bool has_root(Collective collective) {
  const Semantics meaning = semantics(collective);
  return meaning.from_root || meaning.to_root;
}

constexpr bool is_point_to_point(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kRecv;
}

// Whether the payload is one chunk, which an algorithm cuts as it likes.
constexpr bool cuts_payload(Collective collective) {
  const Semantics meaning = semantics(collective);
  return collective != Collective::kBarrier && meaning.input == Chunking::kWhole &&
         meaning.output == Chunking::kWhole;
}

// Whether rank `from` gives anything to rank `to`, which may be itself.
constexpr bool gives(Collective collective, int root, int from, int to) {
  const Semantics meaning = semantics(collective);
  return (!meaning.from_root || from == root) && (!meaning.to_root || to == root);
}

// The chunk of `rank`'s input that goes to `to`, and the chunk of its output that comes from
// `from`.
constexpr int input_chunk(Collective collective, int rank, int to) {
  const Chunking input = semantics(collective).input;
  return input == Chunking::kWhole ? 0 : input == Chunking::kOwn ? rank : to;
}
constexpr int output_chunk(Collective collective, int rank, int from) {
  const Chunking output = semantics(collective).output;
  return output == Chunking::kWhole ? 0 : output == Chunking::kOwn ? rank : from;
}

}  // namespace hccl_like

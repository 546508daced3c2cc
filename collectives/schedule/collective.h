#pragma once
// The collectives and their semantics: which input chunk of which rank contributes to which output
// chunk. The board, large calls of one host and schedules all use these definitions.
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

// PyTorch's spelling: "all_reduce", "reduce_scatter", ...
std::string_view name(Collective collective);
// Accepts also PyTorch's other names ("all_gather_into_tensor") and MPI's and NCCL's ("allreduce").
std::optional<Collective> collective_named(std::string_view wanted);

enum class Chunking : uint8_t {
  kWhole,    // one chunk for all ranks, number 0
  kOwn,      // one chunk, with the rank's number
  kPerRank,  // one chunk for each rank
};

struct Semantics {
  Chunking input = Chunking::kWhole;
  Chunking output = Chunking::kWhole;
  bool reduces = false;    // combines all ranks' inputs
  bool from_root = false;  // only the root gives
  bool to_root = false;    // only the root receives
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

// Whether the payload is one chunk that an algorithm may cut freely.
constexpr bool cuts_payload(Collective collective) {
  const Semantics meaning = semantics(collective);
  return collective != Collective::kBarrier && meaning.input == Chunking::kWhole &&
         meaning.output == Chunking::kWhole;
}

// Whether rank `from` gives data to rank `to`, which may be itself.
constexpr bool gives(Collective collective, int root, int from, int to) {
  const Semantics meaning = semantics(collective);
  return (!meaning.from_root || from == root) && (!meaning.to_root || to == root);
}

// The chunk of `rank`'s input for `to`, and the chunk of its output from `from`.
constexpr int input_chunk(Collective collective, int rank, int to) {
  const Chunking input = semantics(collective).input;
  return input == Chunking::kWhole ? 0 : input == Chunking::kOwn ? rank : to;
}
constexpr int output_chunk(Collective collective, int rank, int from) {
  const Chunking output = semantics(collective).output;
  return output == Chunking::kWhole ? 0 : output == Chunking::kOwn ? rank : from;
}

}  // namespace hccl_like

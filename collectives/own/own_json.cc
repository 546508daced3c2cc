// The JSON form of a user's algorithm. Steps are written as Schedule::to_string() writes them.
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "collectives/call/fingerprint.h"
#include "collectives/own/own_algorithm.h"
#include "core/base/error.h"

namespace hccl_like {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& why) {
  throw_misuse(why + "; docs/own-algorithms.md describes the form");
}

// Equal on all ranks, whatever their processors.
uint64_t digest_of(std::string_view text) {
  uint64_t digest = text.size();
  for (const char letter : text) digest = mix(digest, static_cast<unsigned char>(letter));
  return digest;
}

class StepReader {
 public:
  struct Slots {
    Slot first;
    uint32_t count = 1;
  };

  explicit StepReader(std::string_view text) : rest_(text) {}

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  template <class Number>
  std::optional<Number> number() {
    Number value{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  // "in[3]", "scratch[0..2]"
  std::optional<Slots> slots() {
    const auto buffer = take("in[")        ? std::optional(Buffer::kInput)
                        : take("out[")     ? std::optional(Buffer::kOutput)
                        : take("scratch[") ? std::optional(Buffer::kScratch)
                                           : std::nullopt;
    const auto first = buffer ? number<uint32_t>() : std::nullopt;
    const auto last = first && take("..") ? number<uint32_t>() : first;
    if (!last || *last < *first || *last == UINT32_MAX || !take("]")) return std::nullopt;
    return Slots{{*buffer, *first}, *last - *first + 1};
  }
  bool over() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Adds the step; returns why it is none, or "".
std::string add_step(Schedule& schedule, std::string_view text) {
  const std::string none = "\"" + std::string(text) + "\" is no step";
  StepReader reader(text);
  std::optional<StepReader::Slots> a, dst;
  std::optional<int32_t> peer;
  std::vector<Slot> sources;
  std::optional<Step::Kind> kind;
  if (reader.take("send ")) {
    kind = Step::Kind::kSend;
    a = dst = reader.slots();
    if (a && reader.take("->")) peer = reader.number<int32_t>();
  } else if (reader.take("recv_reduce ")) {
    kind = Step::Kind::kRecvReduce;
    a = reader.slots();
    if (a && reader.take("+<-")) peer = reader.number<int32_t>();
    if (peer && reader.take(" to ")) dst = reader.slots();
  } else if (reader.take("recv ")) {
    kind = Step::Kind::kRecv;
    a = dst = reader.slots();
    if (a && reader.take("<-")) peer = reader.number<int32_t>();
  } else if (reader.take("copy ")) {
    kind = Step::Kind::kCopy;
    a = reader.slots();
    if (a && reader.take(" to ")) dst = reader.slots();
    peer = -1;
  } else if (reader.take("reduce ")) {
    kind = Step::Kind::kReduce;
    do {
      a = reader.slots();
      if (!a || a->count != 1) return none;
      sources.push_back(a->first);
    } while (reader.take("+"));
    if (reader.take(" to ")) dst = reader.slots();
    peer = -1;
  }
  if (!kind || !a || !dst || !peer || !reader.over()) return none;
  if (a->count != dst->count)
    return "\"" + std::string(text) + "\" reads " + std::to_string(a->count) +
           " chunks and writes " + std::to_string(dst->count);
  if (*kind == Step::Kind::kReduce)
    schedule.add_reduce(dst->first, sources);
  else
    schedule.add({.kind = *kind,
                  .peer = *peer,
                  .count = dst->count,
                  .a = *kind == Step::Kind::kRecv ? Slot{} : a->first,
                  .dst = *kind == Step::Kind::kSend ? Slot{} : dst->first});
  return "";
}

Schedule schedule_from(const Json& rank, const std::string& who) {
  if (!rank.is_object() || !rank.contains("rounds") || !rank["rounds"].is_array() ||
      !rank.value("chunks", Json()).is_number_unsigned())
    refuse(who + " has no number \"chunks\" or no list \"rounds\"");
  const auto chunks = rank["chunks"].get<uint64_t>();
  if (chunks == 0 || chunks > UINT16_MAX) refuse(who + " has no number of chunks from 1 to 65535");
  Schedule schedule(static_cast<uint32_t>(chunks));
  for (const Json& like : rank.value("scratch", Json::array())) {
    const std::string text = like.is_string() ? like.get<std::string>() : "";
    StepReader reader(text);
    const auto slot = reader.slots();
    if (!slot || slot->count != 1 || !reader.over())
      refuse(who + ": a scratch slot is " + like.dump() + ", and not like a chunk, \"in[0]\"");
    schedule.add_scratch(slot->first);
  }
  size_t number = 0;
  for (const Json& round : rank["rounds"]) {
    const std::string where = who + ", round " + std::to_string(number++) + ": ";
    if (!round.is_array()) refuse(where + "it is no list of steps");
    schedule.begin_round();
    for (const Json& step : round) {
      const std::string why = step.is_string()
                                  ? add_step(schedule, step.get_ref<const std::string&>())
                                  : step.dump() + " is no text of a step";
      if (!why.empty()) refuse(where + why);
    }
  }
  return schedule;
}

}  // namespace

std::shared_ptr<const OwnAlgorithm> OwnAlgorithm::parse(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("hccl_like_schedule", Json()) != Json(1))
    refuse("an algorithm is no JSON object with \"hccl_like_schedule\": 1");
  const Json name = json.value("name", Json()), which = json.value("collective", Json());
  const auto collective =
      which.is_string() ? collective_named(which.get_ref<const std::string&>()) : std::nullopt;
  if (!name.is_string() || !collective || is_point_to_point(*collective) ||
      *collective == Collective::kBarrier)
    refuse("an algorithm has no \"name\", or its \"collective\" is none that moves tensors");
  if (find_algorithm(*collective, name.get_ref<const std::string&>()) != nullptr)
    refuse("there is an " + std::string(hccl_like::name(*collective)) + " algorithm " +
           name.get<std::string>() + " already; give yours another name");
  const Json hosts = json.value("hosts", Json()), roots = json.value("roots", Json());
  std::vector<int> layout;
  for (const Json& host : hosts.is_array() ? hosts : Json::array())
    if (host.is_number_integer()) layout.push_back(host.get<int>());
  if (layout.empty() || layout.size() != hosts.size())
    refuse("\"hosts\" is not the number of the host of each rank");
  if (!roots.is_array() || roots.size() != (has_root(*collective) ? layout.size() : 1))
    refuse("\"roots\" is no list with the schedules for each root, or with one entry without");

  auto own = std::make_shared<OwnAlgorithm>();
  own->name = name.get<std::string>();
  own->schedules.hosts = Hosts::of(layout);
  own->schedules.digest = digest_of(text) | 2;  // 0 and 1 have a meaning where ranks agree
  for (const Json& ranks : roots) {
    if (!ranks.is_array() || ranks.size() != layout.size())
      refuse("\"roots\" has no schedule for each of the " + std::to_string(layout.size()) +
             " ranks");
    auto& schedules = own->schedules.by_root.emplace_back();
    for (const Json& rank : ranks)
      schedules.push_back(schedule_from(rank, "rank " + std::to_string(schedules.size())));
  }
  own->schedules.chunk_cost = chunk_cost(own->schedules.by_root[0], own->schedules.hosts);
  own->algorithm = {.collective = *collective,
                    .name = own->name,
                    .equal_chunks = json.value("equal_chunks", Json(false)) == Json(true),
                    .own = &own->schedules};
  return own;
}

}  // namespace hccl_like

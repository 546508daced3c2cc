#include "collectives/stream/stream_queue.h"

#include <algorithm>
#include <memory>
#include <span>
#include <thread>

#include "core/machine/pause.h"

namespace hccl_like {

namespace {

// The work of one host function, for devices whose streams do not know words.
struct OnWord {
  volatile uint64_t* word;
  uint64_t value;
  bool waits;

  // On a thread of the device, which may have a core to itself or not.
  void run() const {
    constexpr int kPolls = 1000;
    constexpr std::chrono::microseconds kPause{50};
    auto* const plain = const_cast<uint64_t*>(word);
    if (!waits) return __atomic_store_n(plain, value, __ATOMIC_RELEASE);
    for (int polls = 0; __atomic_load_n(plain, __ATOMIC_ACQUIRE) < value; ++polls)
      polls < kPolls ? cpu_pause() : std::this_thread::sleep_for(kPause);
  }
};

std::optional<Error> queue_word(const Device& device, int index, hcd_stream stream, OnWord on) {
  if (device.can_wait_on_words())
    return on.waits ? device.wait_for_word(index, stream, on.word, on.value)
                    : device.write_word(index, stream, on.word, on.value);
  auto kept = std::make_unique<OnWord>(on);
  const auto run = [](void* self) {
    const std::unique_ptr<OnWord> owned(static_cast<OnWord*>(self));
    owned->run();
  };
  auto error = device.host_function(index, stream, run, kept.get());
  if (!error) (void)kept.release();
  return error;
}

std::optional<Error> queue_reduction(const Device& device, int index, hcd_stream stream,
                                     const StreamProgram& program, const StreamStep& step,
                                     const StreamCall& call) {
  const auto sources = program.sources(step);
  const auto [dst, bytes] = call.memory({program.rank, step.dst}, step.count);
  if (bytes == 0) return std::nullopt;
  const size_t elements = bytes / size_of(call.type);
  std::vector<hcd_ref> all;
  for (const RankSlot& source : sources) all.push_back(call.memory(source, step.count).begin);
  if (all.size() > 1 && (call.scaling.any() || device.can_reduce_many()))
    return device.reduce_many(index, dst, all, elements, call.type, call.op, call.scaling, stream);
  // One source after the other, beginning with that which is there already.
  const auto at_dst = std::ranges::find_if(
      all, [&to = dst](hcd_ref one) { return one.base == to.base && one.offset == to.offset; });
  if (at_dst != all.end())
    std::swap(*at_dst, all.front());
  else if (auto error = device.copy_within(index, dst, all.front(), bytes, stream))
    return error;
  for (const hcd_ref& next : std::span(all).subspan(1))
    if (auto error = device.reduce(index, dst, next, elements, call.type, call.op, stream))
      return error;
  return std::nullopt;
}

// Lets later work of `then` wait for the work of `first`.
std::optional<Error> order(const Device& device, int index, hcd_stream first, hcd_stream then) {
  auto event = device.record(index, first);
  if (!event.ok()) return event.error();
  return device.wait_for_event(index, then, std::move(event).value());
}

}  // namespace

bool can_run_streams(const Device& device) {
  return device.can_copy_within() && device.can_reduce() && device.can_queue_functions() &&
         device.can_record_events();
}

std::optional<Error> queue_stream(const Device& device, int index, hcd_stream stream,
                                  hcd_stream beside, const StreamProgram& program,
                                  const StreamCall& call) {
  const bool forks = std::ranges::any_of(program.steps, &StreamStep::beside);
  std::optional<Error> error;
  if (forks) error = order(device, index, stream, beside);
  if (error) return error;
  for (const StreamStep& step : program.steps) {
    const uint64_t value = call.base + step.value;
    switch (step.kind) {
      case StreamStep::Kind::kReduce:
        error = queue_reduction(device, index, step.beside ? beside : stream, program, step, call);
        break;
      case StreamStep::Kind::kWait:
        error = queue_word(device, index, stream, {call.word(step.rank, step.second), value, true});
        break;
      case StreamStep::Kind::kSignal:
        for (int peer = 0; peer < call.ranks && !error; ++peer)
          if (auto* const copy = call.copy(peer, step.second))
            error = queue_word(device, index, stream, {copy, value, false});
        break;
      case StreamStep::Kind::kReset:
        for (int peer = 0; peer < call.ranks && !error; ++peer)
          if (peer != program.rank)
            error = queue_word(device, index, stream, {call.word(peer, step.second), 0, false});
        break;
    }
    if (error) return error;
  }
  return forks ? order(device, index, beside, stream) : std::nullopt;
}

}  // namespace hccl_like

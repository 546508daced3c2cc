#include "collectives/stream/stream_queue.h"

#include <memory>
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
  const hcd_ref first = call.memory(sources[0], step.count).begin;
  if (dst.base != first.base || dst.offset != first.offset)
    if (auto error = device.copy_within(index, dst, first, bytes, stream)) return error;
  for (const RankSlot& source : sources.subspan(1)) {
    const hcd_ref next = call.memory(source, step.count).begin;
    if (auto error =
            device.reduce(index, dst, next, bytes / size_of(call.type), call.type, call.op, stream))
      return error;
  }
  return std::nullopt;
}

}  // namespace

bool can_run_streams(const Device& device) {
  return device.can_copy_within() && device.can_reduce() && device.can_queue_functions();
}

std::optional<Error> queue_stream(const Device& device, int index, hcd_stream stream,
                                  const StreamProgram& program, const StreamCall& call) {
  for (const StreamStep& step : program.steps) {
    auto error = step.kind == StreamStep::Kind::kReduce
                     ? queue_reduction(device, index, stream, program, step, call)
                     : queue_word(device, index, stream,
                                  {.word = call.word(step.rank),
                                   .value = call.base + step.value,
                                   .waits = step.kind == StreamStep::Kind::kWait});
    if (error) return error;
  }
  return std::nullopt;
}

}  // namespace hccl_like

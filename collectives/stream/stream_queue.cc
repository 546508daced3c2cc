#include "collectives/stream/stream_queue.h"

#include <thread>

#include "core/machine/pause.h"

namespace hccl_like {

namespace {

uint64_t load(const volatile uint64_t* word) {
  return __atomic_load_n(const_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE);
}
void store(volatile uint64_t* word, uint64_t value) {
  __atomic_store_n(const_cast<uint64_t*>(word), value, __ATOMIC_RELEASE);
}

// On a thread of the device, which may have a core to itself or not.
constexpr int kPolls = 1000;
constexpr std::chrono::microseconds kPause{50};

void await(const volatile uint64_t* word, uint64_t value) {
  for (int polls = 0; load(word) < value; ++polls)
    polls < kPolls ? cpu_pause() : std::this_thread::sleep_for(kPause);
}

bool same(hcd_ref a, hcd_ref b) { return a.base == b.base && a.offset == b.offset; }

}  // namespace

bool StreamQueue::can_run(const Device& device) {
  return device.can_copy_within() && device.can_reduce() && device.can_queue_functions();
}

std::optional<Error> StreamQueue::push(const StreamProgram& program, const StreamCall& call) {
  for (const StreamStep& step : program.steps) {
    std::optional<Error> error;
    switch (step.kind) {
      case StreamStep::Kind::kWait:
        error = wait(call.word(step.rank), call.base + step.value);
        break;
      case StreamStep::Kind::kSignal:
        error = signal(call.word(step.rank), call.base + step.value);
        break;
      case StreamStep::Kind::kReduce:
        error = reduce(program, step, call);
        break;
    }
    if (error) return error;
  }
  return std::nullopt;
}

std::optional<Error> StreamQueue::wait(volatile uint64_t* word, uint64_t value) {
  if (device_.can_wait_on_words()) return device_.wait_for_word(index_, stream_, word, value);
  words_.push_back({word, value});
  const auto until = [](void* self) {
    const auto& [awaited, least] = *static_cast<const Word*>(self);
    await(awaited, least);
  };
  return device_.host_function(index_, stream_, until, &words_.back());
}

std::optional<Error> StreamQueue::signal(volatile uint64_t* word, uint64_t value) {
  if (device_.can_wait_on_words()) return device_.write_word(index_, stream_, word, value);
  words_.push_back({word, value});
  const auto set = [](void* self) {
    const auto& [mine, next] = *static_cast<const Word*>(self);
    store(mine, next);
  };
  return device_.host_function(index_, stream_, set, &words_.back());
}

std::optional<Error> StreamQueue::reduce(const StreamProgram& program, const StreamStep& step,
                                         const StreamCall& call) {
  const auto sources = program.sources(step);
  const auto [dst, bytes] = call.memory({program.rank, step.dst}, step.count);
  if (bytes == 0) return std::nullopt;
  const hcd_ref first = call.memory(sources[0], step.count).begin;
  if (!same(dst, first))
    if (auto error = device_.copy_within(index_, dst, first, bytes, stream_)) return error;
  for (const RankSlot& source : sources.subspan(1)) {
    const hcd_ref next = call.memory(source, step.count).begin;
    if (auto error = device_.reduce(index_, dst, next, bytes / size_of(call.type), call.type,
                                    call.op, stream_))
      return error;
  }
  return std::nullopt;
}

}  // namespace hccl_like

#include "collectives/stream/small_calls.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/engine/engine.h"
#include "collectives/stream/exchange_messages.h"
#include "core/base/own_thread.h"

namespace hccl_like {
namespace {

constexpr size_t kPayload = HCD_SMALL_BYTES;
constexpr std::chrono::microseconds kBetweenLooks{500};
// How long a group that closes waits for the last calls of other ranks.
constexpr std::chrono::seconds kPatience{5};

struct ShownArea {
  ShownMemory area, words;
  uint64_t able = 0;
};

MappedRange zeroed(const Device& device, int index, hcd_stream stream, size_t bytes) {
  MappedRange memory = device.allocate(index, bytes).value();
  const std::vector<std::byte> zeros(bytes);
  throw_if(device.copy_from_host(index, {memory.data(), 0}, zeros.data(), bytes, stream));
  throw_if(device.synchronize(index, stream));
  return memory;
}

}  // namespace

// A call made by kernels; `number` counts these.
class SmallCalls::Watched : public DeviceCall {
 public:
  Watched(const SmallCalls& calls, uint64_t number) : calls_(calls), number_(number) {}

  bool completed() const override { return calls_.load(kCompleted) >= number_; }
  bool begun() const override { return calls_.begun(calls_.communicator_->rank()) >= number_; }
  std::vector<int> waiting_for() const override {
    std::vector<int> late, others;
    for (int peer = 0; peer < calls_.communicator_->size() && begun(); ++peer) {
      if (peer == calls_.communicator_->rank()) continue;
      others.push_back(peer);
      if (calls_.begun(peer) < number_) late.push_back(peer);
    }
    return late.empty() ? others : late;
  }

 private:
  const SmallCalls& calls_;
  const uint64_t number_;
};

bool SmallCalls::may_serve(const Device& device, const Hosts& hosts,
                           const CallPathOptions& options) {
  return device.can_all_reduce_small() && device.can_make_streams() && device.can_allocate() &&
         hosts.count() == 1 && hosts.size() > 1 &&
         hosts.size() <= static_cast<int>(HCD_SMALL_RANKS) && options.maps_memory &&
         options.direct && !options.forced;
}

SmallCalls::SmallCalls(std::shared_ptr<Communicator> communicator, const Device& device, int index,
                       const Device& host, hcd_stream like, Call first)
    : communicator_(std::move(communicator)),
      device_(device),
      index_(index),
      stream_(device.make_stream(index, like).value()),
      words_(*communicator_, device, index, host, kWords),
      reductions_(device, index, stream_.get()),
      area_(zeroed(device, index, stream_.get(),
                   HCD_SMALL_AREA(static_cast<uint64_t>(communicator_->size()), kPayload))),
      areas_(static_cast<size_t>(communicator_->size())),
      records_((areas_.size() + 1) * sizeof(ShownArea)) {
  ShownArea mine;
  Exports::Last last;
  if (const auto shown =
          show(*communicator_, device_, index_, {{area_.data(), 0}, area_.size()}, last))
    mine.area = *shown, mine.able = 1;
  mine.words.handle = words_.shown().handle;
  mine.words.offset = words_.shown().offset;
  const size_t all = areas_.size() * sizeof(ShownArea);
  std::memcpy(&records_[all], &mine, sizeof mine);
  exchange_ = communicator_->prepare_exchange(std::move(first), {&records_[all], sizeof mine},
                                              {records_.data(), all});
  thread_ = own_thread("watches small calls", [this] { run(); });
  communicator_->launch({&exchange_, 1}, /*waited_for=*/false);
}

SmallCalls::~SmallCalls() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  // Kernels of other ranks may still write flags to it.
  if (communicator_->has_failed() || !all_completed(queued_)) area_.keep();
}

uint64_t SmallCalls::load(Word word) const {
  return __atomic_load_n(const_cast<const uint64_t*>(words_.own(word)), __ATOMIC_ACQUIRE);
}

void SmallCalls::store(SharedWords::Word* word, uint64_t value) const {
  __atomic_store_n(const_cast<uint64_t*>(word), value, __ATOMIC_RELEASE);
}

// Calls that the rank's kernels have begun.
uint64_t SmallCalls::begun(int rank) const {
  return (load(static_cast<Word>(kProgress + rank)) + 1) / 2;
}

bool SmallCalls::all_completed(uint64_t calls) const {
  for (int rank = 0; rank < communicator_->size(); ++rank)
    if (load(static_cast<Word>(kProgress + rank)) / 2 < calls) return false;
  return true;
}

bool SmallCalls::takes_next(const Call& call) {
  std::unique_lock lock(mutex_);
  if (by_host_ < kByHost) return ++by_host_, false;
  changed_.wait(lock, [this] { return ready_ != Ready::kUnknown; });
  if (ready_ == Ready::kNo) return false;
  return reductions_.has(call.type, call.op,
                         scaling(call.type, call.op, communicator_->size(), call.factor));
}

std::shared_ptr<Operation> SmallCalls::queue(Call call, DeviceRange input, DeviceRange output,
                                             hcd_stream stream) {
  const uint64_t number = queued_.load(std::memory_order_relaxed) + 1;
  call.by_device = std::make_shared<Watched>(*this, number);
  const DataType type = call.type;
  const ReduceOp op = call.op;
  const Scaling scales = scaling(type, op, communicator_->size(), call.factor);
  auto operation = communicator_->prepare(std::move(call));
  const Device::SmallGroup group{.rank = communicator_->rank(),
                                 .payload = kPayload,
                                 .areas = areas_,
                                 .state = words_.own(kState),
                                 .stop = words_.own(kStop),
                                 .completed = words_.own(kCompleted),
                                 .fingerprint = operation->fingerprint() + operation->sequence()};
  throw_if(device_.all_reduce_small(index_, group, output.begin, input.begin,
                                    input.bytes / size_of(type), type, op, scales, stream));
  {
    std::lock_guard lock(mutex_);
    queued_.store(number, std::memory_order_relaxed);
  }
  changed_.notify_all();
  return operation;
}

void SmallCalls::run() {
  const bool good = meet();
  {
    std::lock_guard lock(mutex_);
    ready_ = good ? Ready::kYes : Ready::kNo;
  }
  changed_.notify_all();
  if (good) watch();
}

// Whether all ranks reach all areas.
bool SmallCalls::meet() {
  Engine& engine = communicator_->engine();
  engine.wait(*exchange_, Deadline::never());
  if (exchange_->error() != nullptr) return false;
  bool good = true;
  for (int rank = 0; rank < communicator_->size() && good; ++rank)
    good = reach(rank, &records_[static_cast<size_t>(rank) * sizeof(ShownArea)]);
  return all_agree(exchange_, /*slice=*/1, good);
}

bool SmallCalls::reach(int peer, const std::byte* record) {
  ShownArea told;
  std::memcpy(&told, record, sizeof told);
  hcd_ref& area = areas_[static_cast<size_t>(peer)];
  if (told.able == 0) return false;
  if (peer == communicator_->rank()) return area = {area_.data(), 0}, true;
  auto there = hccl_like::reach(*communicator_, device_, index_, told.area, peer);
  if (!there) return false;
  area = there->begin;
  held_.push_back(std::move(there->held));
  return words_.reach(peer, {.handle = told.words.handle, .offset = told.words.offset});
}

// Tells all ranks, and this one's engine, when a kernel has begun or ended. Ends kernels that wait
// if the group has failed.
void SmallCalls::watch() {
  Deadline patience = Deadline::never();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (tell_progress()) {
      lock.unlock();
      communicator_->engine().nudge();
      lock.lock();
    }
    const bool failed = communicator_->has_failed();
    if (failed) store(words_.own(kStop), 1);
    const uint64_t queued = queued_.load(std::memory_order_relaxed);
    if (stopping_ && patience.is_never()) patience = Deadline::after(kPatience);
    if (stopping_ && (failed || patience.expired() || all_completed(queued))) return;
    if (!stopping_ && load(kCompleted) == queued)
      changed_.wait(lock, [&] { return stopping_ || queued_ != queued; });
    else
      changed_.wait_for(lock, kBetweenLooks);
  }
}

// Whether there is progress.
bool SmallCalls::tell_progress() {
  // A kernel stores kCompleted before it ends, so the call after that one may seem to have begun.
  const uint64_t running = load(kState) != 0 ? 1 : 0;
  const uint64_t progress = std::min(2 * load(kCompleted) + running, 2 * queued_.load());
  const int self = communicator_->rank();
  const auto mine = static_cast<size_t>(kProgress + self);
  if (load(static_cast<Word>(mine)) >= progress) return false;
  for (int rank = 0; rank < communicator_->size(); ++rank)
    store(rank == self ? words_.own(mine) : words_.of(rank, mine), progress);
  return true;
}

}  // namespace hccl_like

#include "collectives/stream/stream_execution.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "collectives/stream/exchange_messages.h"
#include "collectives/verify/job.h"

namespace hccl_like {
namespace {

// Numbers of the messages of a call after its exchange.
constexpr uint32_t kAgreed = 1, kFinished = 2;

}  // namespace

StreamExecution::StreamExecution(StreamExecutor& executor, Call call, DeviceRange input,
                                 DeviceRange output, Use use)
    : executor_(executor),
      communicator_(executor.communicator_.get()),
      call_(std::move(call)),
      scaling_(hccl_like::reduces(call_.collective)
                   ? scaling(call_.type, call_.op, size(), call_.factor)
                   : Scaling{}),
      input_(input),
      output_(output),
      compiled_{
          &executor.program(call_.collective, call_.root, false),
          &executor.program(call_.collective, call_.root, may_run_in_place(call_.collective))},
      record_bytes_(sizeof(Record) + (call_.uneven ? 2 * sizeof(uint64_t) * ranks() : 0)),
      records_((ranks() + 1) * record_bytes_),
      reached_(ranks()) {
  const size_t all = ranks() * record_bytes_;
  exchange_ = communicator_->prepare_exchange(call_, {records_.data() + all, record_bytes_},
                                              {records_.data(), all});
  mine_.use = use;
  if (use == Use::kCaptured) captured_ = executor_.words_of_captured();
  if (may_be_small()) {
    prepare_small();
    return;
  }
  find_chunks();
  size_t scratch = 0;
  for (const StreamExecutor::Compiled* const one : compiled_) {
    const auto& needed = one->scratch[static_cast<size_t>(rank())];
    scratch = std::max(scratch, scratch_begin(needed, needed.size()));
  }
  mine_.able = show(input_, mine_.input, executor_.last_input_) &&
               show(output_, mine_.output, executor_.last_output_);
  if (scratch > 0 && use == Use::kCaptured) {
    own_scratch_ = executor_.device_.allocate(executor_.index_, scratch).value();
    scratch_ = {own_scratch_.data(), 0};
  } else if (scratch > 0) {
    scratch_ = executor_.scratch(scratch);
  }
  if (scratch > 0)
    mine_.able = show({scratch_, scratch}, mine_.scratch, executor_.last_scratch_) && mine_.able;
  if (input_.bytes > 0 && output_.bytes > 0)
    mine_.place = input_.overlaps(output_) ? Place::kInPlace : Place::kApart;
}

StreamExecution::Record StreamExecution::record(int rank) const {
  Record record;
  std::memcpy(&record, &records_[static_cast<size_t>(rank) * record_bytes_], sizeof record);
  return record;
}

// Bytes of a chunk of `rank`, as that rank tells them.
uint64_t StreamExecution::chunk_told(int rank, bool input, size_t chunk) const {
  const size_t at = sizeof(Record) + ((input ? 0 : ranks()) + chunk) * sizeof(uint64_t);
  uint64_t bytes = 0;
  std::memcpy(&bytes, &records_[static_cast<size_t>(rank) * record_bytes_ + at], sizeof bytes);
  return bytes;
}

// Whether both ranks of each chunk tell the same size, and some chunk is large.
bool StreamExecution::sizes_fit() const {
  uint64_t largest = 0;
  for (int rank = 0; rank < size(); ++rank) {
    uint64_t inputs = 0, outputs = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const auto chunk = static_cast<size_t>(peer);
      inputs += chunk_told(rank, true, chunk);
      outputs += chunk_told(rank, false, chunk);
      if (!gives(call_.collective, call_.root, rank, peer)) continue;
      const auto given = static_cast<size_t>(input_chunk(call_.collective, rank, peer));
      const auto taken = static_cast<size_t>(output_chunk(call_.collective, peer, rank));
      const uint64_t bytes = chunk_told(rank, true, given);
      if (bytes != chunk_told(peer, false, taken)) return false;
      largest = std::max(largest, bytes);
    }
    const Record told = record(rank);
    if (inputs != told.input.bytes || outputs != told.output.bytes) return false;
  }
  return mine_.use == Use::kCaptured || largest >= StreamExecutor::kLeastChunk;
}

// Fills in the record that this rank shows.
void StreamExecution::tell() {
  std::byte* at = records_.data() + ranks() * record_bytes_;
  std::memcpy(at, &mine_, sizeof mine_);
  if (!call_.uneven) return;
  at += sizeof mine_;
  for (const Layout* side : {&call_.input, &call_.output})
    for (size_t chunk = 0; chunk < ranks(); ++chunk, at += sizeof(uint64_t)) {
      const uint64_t bytes = side->bytes(chunk);
      std::memcpy(at, &bytes, sizeof bytes);
    }
}

// False if peers cannot map the memory.
bool StreamExecution::show(const DeviceRange& side, ShownMemory& memory,
                           Exports::Last& last) const {
  if (side.bytes == 0) return true;
  const auto shown =
      hccl_like::show(*communicator_, executor_.device_, executor_.index_, side, last);
  if (shown) memory = *shown;
  return shown.has_value();
}

// Peers can map the memory of an earlier call again, or could not map it then. Memory without a
// name is mapped for each call anew.
void StreamExecution::compare_with_earlier_calls() {
  auto& shown = executor_.shown_;
  if (shown.size() > StreamExecutor::kMostShown) shown.clear();
  for (const ShownMemory* const memory : {&mine_.input, &mine_.output, &mine_.scratch}) {
    if (memory->bytes == 0) continue;
    const auto known = shown.find(memory->name);
    if (known == shown.end())
      mine_.fresh = 1;
    else if (!known->second)
      mine_.able = 0;
  }
}

bool StreamExecution::agree() {
  compare_with_earlier_calls();
  if (hccl_like::reduces(call_.collective))
    mine_.able = mine_.able && executor_.reductions_.has(call_.type, call_.op, scaling_);
  // Streams scale only a sum of one step, and a user's schedule may add in several. Ranks of an
  // uneven call do not know the sizes of each other's scratch memory.
  if (communicator_->own(call_.collective) != nullptr)
    mine_.able = mine_.able && !scaling_.any() && !call_.uneven;
  mine_.words.handle = shared_words().shown().handle;
  mine_.words.offset = shared_words().shown().offset;
  tell();
  communicator_->launch({&exchange_, 1}, /*waited_for=*/true);
  communicator_->engine().wait(*exchange_, Deadline::never());
  if (exchange_->error() != nullptr) return false;

  bool able = true, apart = false, fresh = false;
  for (int rank = 0; rank < size(); ++rank) {
    const Record told = record(rank);
    if (told.use != mine_.use) return disagree(rank);
    able = able && told.able != 0 && told.small == mine_.small;
    fresh = fresh || told.fresh != 0;
    in_place_ = in_place_ || told.place == Place::kInPlace;
    apart = apart || told.place == Place::kApart;
  }
  if (!able || (in_place_ && (apart || !may_run_in_place(call_.collective))) ||
      (call_.uneven && !sizes_fit()))
    return false;
  bool mapped = true;
  for (int peer = 0; peer < size() && mapped; ++peer) mapped = map(peer);
  if (!fresh) {
    if (!mapped) fail("the memory of another rank could not be mapped for the device any more");
    return mapped;
  }
  mapped = all_agree(exchange_, kAgreed, mapped, call_.timeout);
  for (const ShownMemory* const memory : {&mine_.input, &mine_.output, &mine_.scratch})
    if (memory->bytes > 0 && memory->name != 0) executor_.shown_[memory->name] = mapped;
  return mapped;
}

// Maps what this rank's device reads and writes of `peer`.
bool StreamExecution::map(int peer) {
  Reached& reached = reached_[static_cast<size_t>(peer)];
  if (peer == rank()) {
    reached = {input_.begin, output_.begin, scratch_, {}};
    return true;
  }
  const Record told = record(peer);
  const auto open = [&](const ShownMemory& memory, hcd_ref& to) {
    if (memory.bytes == 0) return true;
    auto there =
        hccl_like::reach(*communicator_, executor_.device_, executor_.index_, memory, peer);
    if (!there) return false;
    to = there->begin;
    reached.held.push_back(std::move(there->held));
    return true;
  };
  return open(told.input, reached.input) && open(told.output, reached.output) &&
         open(told.scratch, reached.scratch) &&
         shared_words().reach(peer, {.handle = told.words.handle, .offset = told.words.offset});
}

// Other ranks wait for this one, so they must hear of it.
void StreamExecution::fail(const std::string& why) const {
  communicator_->abort(exchange_->describe() + " failed: " + why);
}

DeviceRange StreamExecution::place(RankSlot slot, uint32_t count) const {
  const Reached& memory = reached_[static_cast<size_t>(slot.rank)];
  if (slot.slot.buffer == Buffer::kScratch) {
    const auto& needed = compiled().scratch[static_cast<size_t>(slot.rank)];
    hcd_ref begin = memory.scratch;
    begin.offset += scratch_begin(needed, slot.slot.index);
    return {begin, chunk_bytes(needed[slot.slot.index].index)};
  }
  const bool input = slot.slot.buffer == Buffer::kInput;
  const Semantics meaning = semantics(call_.collective);
  const size_t first = slot.slot.index;
  const bool only_own = (input ? meaning.input : meaning.output) == Chunking::kOwn;
  hcd_ref begin = input ? memory.input : memory.output;
  if (call_.uneven) {
    size_t bytes = 0;
    for (size_t i = 0; i < first && !only_own; ++i) begin.offset += chunk_told(slot.rank, input, i);
    for (size_t i = first; i < first + count; ++i) bytes += chunk_told(slot.rank, input, i);
    return {begin, bytes};
  }
  begin.offset += only_own ? 0 : begins_[first];
  return {begin, begins_[first + count] - begins_[first]};
}

size_t StreamExecution::chunk_bytes(size_t chunk) const {
  return begins_[chunk + 1] - begins_[chunk];
}

// Of a slot in scratch memory, whose slots are like `needed`; with their number, the whole size.
size_t StreamExecution::scratch_begin(std::span<const Slot> needed, size_t index) const {
  constexpr size_t kAlignment = 256;
  size_t begin = 0;
  for (const Slot& like : needed.first(index))
    begin += (chunk_bytes(like.index) + kAlignment - 1) / kAlignment * kAlignment;
  return begin;
}

void StreamExecution::find_chunks() {
  const size_t chunks = compiled().chunks;
  const size_t element = size_of(call_.type);
  const size_t whole = std::max(input_.bytes, output_.bytes);
  // Of a gather and a scatter, only the root has all chunks, which are equal.
  const bool one = chunk_side(call_).total_bytes() == 0;
  begins_.assign(1, 0);
  for (size_t chunk = 0; chunk < chunks; ++chunk)
    begins_.push_back(cuts_payload(call_.collective)
                          ? even_begin(whole / element, chunk + 1, chunks) * element
                          : begins_.back() + (one ? whole : chunk_side(call_).bytes(chunk)));
}

StreamCall StreamExecution::stream_call() const {
  const SharedWords& words = shared_words();
  const auto number = [first = captured_.first, ranks = ranks()](int rank, bool second) {
    return first + static_cast<size_t>(rank) + (second ? ranks : 0);
  };
  return {
      .memory = [this](RankSlot slot, uint32_t count) { return place(slot, count); },
      .word = [&words, number](int rank, bool second) { return words.own(number(rank, second)); },
      .copy = [&words, number, own = rank()](
                  int peer, bool second) { return words.of(peer, number(own, second)); },
      .ranks = size(),
      .type = call_.type,
      .op = call_.op,
      .scaling = scaling_};
}

void StreamExecution::queue(std::optional<DeviceEvent> begin) {
  const Device& device = executor_.device_;
  const int index = executor_.index_;
  const hcd_stream stream = executor_.stream_.get();
  begin_ = std::move(begin);
  const StreamProgram& program = compiled().program;
  StreamCall call = stream_call();
  call.base = std::exchange(executor_.base_, executor_.base_ + program.values);
  end_ = std::make_shared<End>(communicator_->engine());

  std::optional<Error> error;
  if (begin_) error = device.wait_for_event(index, stream, *begin_);
  if (!error) error = queue_stream(device, index, stream, executor_.beside_.get(), program, call);
  if (error) fail(error->message);
  auto kept = std::make_unique<std::shared_ptr<End>>(end_);
  const auto reach = [](void* self) {
    const std::unique_ptr<std::shared_ptr<End>> end(static_cast<std::shared_ptr<End>*>(self));
    (*end)->reached.store(true, std::memory_order_release);
    (*end)->engine.nudge();
  };
  if (auto refused = device.host_function(index, stream, reach, kept.get())) {
    fail(refused->message);
    release();
    // A stream that cannot be waited for is that of a lost device, which does nothing any more.
    if (const auto lost = device.synchronize(index, stream)) fail(lost->message);
    end_->reached.store(true, std::memory_order_release);
    return;
  }
  (void)kept.release();
  auto passed = device.record(index, stream);
  if (passed.ok()) return void(passed_ = std::move(passed).value());
  fail(passed.error().message);
}

void StreamExecution::release() const { executor_.words_.release(0, ranks()); }

// A lost device calls no function, and its events have errors.
bool StreamExecution::lost() const {
  if (!passed_) return true;
  const auto passed = executor_.device_.passed(executor_.index_, *passed_);
  if (!passed.ok()) fail(passed.error().message);
  return !passed.ok();
}

void StreamExecution::await_begin() {
  if (!begin_) return;
  if (const auto error = executor_.device_.synchronize(executor_.index_, *begin_))
    fail(error->message);
}

std::optional<Error> StreamExecution::finish() {
  constexpr std::chrono::milliseconds kBetweenReleases{1};
  Engine& engine = communicator_->engine();
  const auto reached = [&] { return end_->reached.load(std::memory_order_acquire); };
  std::vector<std::byte> bytes(2 * ranks());
  const std::span<std::byte> heard = std::span(bytes).first(bytes.size() / 2);
  const std::span<std::byte> said = std::span(bytes).last(bytes.size() / 2);
  std::vector<std::shared_ptr<Operation>> operations;
  const auto post = [&](Collective direction, std::span<std::byte> of) {
    auto more = messages_after(exchange_, direction, kFinished, of, call_.timeout);
    communicator_->launch(more, /*waited_for=*/true);
    operations.insert(operations.end(), more.begin(), more.end());
  };
  // The receives are under way meanwhile, so that a lost rank or a time-out ends them.
  post(Collective::kRecv, heard);
  engine.wait_long([&] { return reached() || communicator_->has_failed(); });
  while (!reached() && !lost()) {
    release();  // repeatedly: streams of others may still write their words
    std::this_thread::sleep_for(kBetweenReleases);
  }
  post(Collective::kSend, said);
  engine.wait(operations, Deadline::never());
  return communicator_->failure();
}

}  // namespace hccl_like

#include "collectives/engine/execution.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/engine/communicator.h"

namespace hccl_like {
namespace {

constexpr std::chrono::hours kCountable{24 * 365 * 100};

constexpr size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The chunk that describes `slot`: a scratch slot has the size of the chunk it was made for.
Slot like(const Schedule& schedule, Slot slot) {
  return slot.buffer == Buffer::kScratch ? schedule.scratch_like()[slot.index] : slot;
}

}  // namespace

void Execution::begin(std::shared_ptr<Operation> operation, ScratchPool& pool, SelfMessages& self) {
  operation_ = std::move(operation);
  plan_ = &operation_->plan_;
  pool_ = &pool;
  self_ = &self;
  Call& call = operation_->call_;
  element_bytes_ = size_of(call.type);
  input_ = std::move(call.input);
  output_ = std::move(call.output);
  start_clock();
  slices_started_ = slices_done_ = 0;
  told_.clear();
  unbound_ = call.collective == Collective::kRecv && call.root == kAnySource;
  stage_.off();
  by_device_ = std::move(call.by_device);
  device_began_ = false;
  if (by_device_ != nullptr) deadline_ = Deadline::never();
  const auto& board = operation_->communicator().board();
  if (by_device_ == nullptr && board && plan_->channel == 0) {
    board_call_ = operation_->communicator().board_call(call, *plan_, operation_->sequence_);
    board_call_.input = &input_;
    board_call_.output = &output_;
    board_call_.bytes = operation_->bytes_;
    stage_.begin(board_call_, plan_->path, operation_->shown_, std::move(operation_->large_));
  }
  scheduled_ = false;
  if (by_device_ == nullptr && plan_->path == CallPath::kMessages) begin_schedule();
}

void Execution::start_clock() {
  const auto timeout = operation_->call_.timeout.count() > 0 ? operation_->call_.timeout
                                                             : operation_->communicator().timeout();
  operation_->started_ = Deadline::Clock::now();
  // One clock read for both, unless the sum overflows.
  deadline_ = timeout < kCountable ? Deadline::at(operation_->started_ + timeout)
                                   : Deadline::after(timeout);
}

void Execution::begin_schedule() {
  scheduled_ = true;
  const Program& program = *plan_->program;
  const Schedule& schedule = program.schedule;
  const Call& call = operation_->call_;
  grain_ = plan_->codec == nullptr ? element_bytes_ : Codec::kBlock * element_bytes_;
  rounds_input_ = plan_->codec != nullptr && !reduces(call.collective);
  if (cuts_payload(call.collective)) {
    input_ = std::move(input_).recut(schedule.chunks(), grain_);
    output_ = std::move(output_).recut(schedule.chunks(), grain_);
  }
  // A step that has all inputs of a rank scales. Else each rank scales its input and its result.
  at_once_ = on_the_way_ = {};
  (program.sums_at_once ? at_once_ : on_the_way_) = plan_->scaling;

  scratch_offsets_.clear();
  scratch_stride_ = 0;
  const auto reserve = [&](Slot slot) {
    const Layout& layout = slot.buffer == Buffer::kInput ? input_ : output_;
    const size_t bytes = layout.bytes(slot.index);
    scratch_offsets_.push_back(scratch_stride_);
    scratch_stride_ += round_up(bytes / plan_->slices + 2 * grain_);
  };
  for (Slot slot : schedule.scratch_like()) reserve(slot);
  for (uint32_t chunk = 0; prepares_input() && chunk < schedule.chunks(); ++chunk)
    reserve(in(chunk));
  if (scratch_stride_ > 0) scratch_ = pool_->take(scratch_stride_ * plan_->window);

  if (slices_.size() < plan_->window) slices_.resize(plan_->window);
  for (Slice& slice : slices_) {
    slice.active = false;
    // Posted messages are pinned, so all of a round are allocated first.
    if (slice.sends.size() < program.most_sends) slice.sends.resize(program.most_sends);
    if (slice.recvs.size() < program.most_recvs) slice.recvs.resize(program.most_recvs);
  }
}

bool Execution::watch_device() {
  if (!device_began_ && by_device_->begun()) {
    device_began_ = true;
    start_clock();
  }
  if (!by_device_->completed()) return false;
  slices_done_ = plan_->slices;
  return true;
}

bool Execution::advance() {
  if (by_device_ != nullptr) return watch_device();
  if (unbound_ && !bind_any_source()) return false;
  bool moved = stage_.advance();
  if (stage_.finished()) slices_done_ = plan_->slices;
  if (stage_.holds()) return moved;
  // The call falls back to messages.
  if (!scheduled_) begin_schedule();
  for (uint32_t i = 0; i < plan_->window; ++i) {
    Slice& slice = slices_[i];
    if (!slice.active) {
      if (slices_started_ == plan_->slices) continue;
      start_slice(slice);
      moved = true;
    }
    while (slice.active && slice.pending == 0) {
      if (plan_->codec != nullptr) slice.compressed.finish();
      ++slice.round;
      moved = true;
      if (slice.round == plan_->program->schedule.rounds())
        finish_slice(slice);
      else
        start_round(slice);
    }
  }
  return moved;
}

void Execution::start_slice(Slice& slice) {
  slice.number = slices_started_++;
  slice.round = 0;
  slice.pending = 0;
  slice.active = true;
  if (prepares_input()) prepare_input(slice);
  if (plan_->program->schedule.rounds() == 0)
    finish_slice(slice);
  else
    start_round(slice);
}

void Execution::start_round(Slice& slice) {
  slice.sends_used = slice.recvs_used = 0;
  const auto steps = plan_->program->schedule.steps(slice.round);
  if (plan_->codec != nullptr) begin_compressed(slice);
  // Receives first: the sooner a peer knows that this rank is ready, the sooner it sends.
  for (const Step& step : steps)
    if (step.kind == Step::Kind::kRecv || step.kind == Step::Kind::kRecvReduce) post(slice, step);
  for (const Step& step : steps)
    if (step.kind == Step::Kind::kSend) post(slice, step);
  for (const Step& step : steps)
    if (step.kind == Step::Kind::kCopy || step.kind == Step::Kind::kReduce) compute(slice, step);
}

void Execution::finish_slice(Slice& slice) {
  slice.active = false;
  ++slices_done_;
  if (on_the_way_.result == 1) return;
  for (size_t chunk = 0; chunk < plan_->program->schedule.chunks(); ++chunk) {
    const Part range = part(out(chunk), slice.number);
    output_.visit(chunk, range.begin, range.end, [&](Region region) {
      plan_->reduction.scale(region.data, region.data, region.bytes / element_bytes_,
                             {.result = on_the_way_.result});
    });
  }
}

// The input is read-only: all steps of the slice read the copy in scratch memory.
void Execution::prepare_input(const Slice& slice) {
  for (size_t chunk = 0; chunk < plan_->program->schedule.chunks(); ++chunk) {
    const Part range = part(in(chunk), slice.number);
    std::byte* to = scratch_place(in(chunk), slice);
    if (rounds_input_) {
      Pieces from;
      input_.visit(chunk, range.begin, range.end,
                   [&](Region region) { from.add(region.data, region.bytes); });
      round_to_codec(*plan_->codec, from, {to, from.bytes()});
      continue;
    }
    input_.visit(chunk, range.begin, range.end, [&](Region from) {
      plan_->reduction.scale(to, from.data, from.bytes / element_bytes_,
                             {.input = on_the_way_.input});
      to += from.bytes;
    });
  }
}

bool Execution::is_compressed(const Step& step) const {
  if (plan_->codec == nullptr || step.peer < 0) return false;
  const Communicator& communicator = operation_->communicator();
  const Hosts& hosts = communicator.topology().hosts;
  return hosts.host(step.peer) != hosts.host(communicator.rank());
}

void Execution::begin_compressed(Slice& slice) {
  size_t bytes = 0;
  for (const Step& step : plan_->program->schedule.steps(slice.round)) {
    if (!is_compressed(step)) continue;
    const Slot slot = step.kind == Step::Kind::kSend ? step.a : step.dst;
    for (uint32_t i = 0; i < step.count; ++i) {
      const Part range = part({slot.buffer, slot.index + i}, slice.number);
      bytes += plan_->codec->bytes((range.end - range.begin) / element_bytes_);
    }
  }
  slice.compressed.begin(*plan_->codec, bytes);
}

// Address of a scratch slot, or of a prepared input chunk; the latter follow the former.
std::byte* Execution::scratch_place(Slot slot, const Slice& slice) const {
  const size_t first =
      slot.buffer == Buffer::kInput ? plan_->program->schedule.scratch_like().size() : 0;
  const auto place = static_cast<size_t>(&slice - slices_.data());
  return scratch_ + place * scratch_stride_ + scratch_offsets_[first + slot.index];
}

void Execution::post(Slice& slice, const Step& step) {
  const int peer = unbound_source(step.peer);
  ++slice.pending;
  const auto prepare = [&](Message& message, size_t bytes) {
    message.tag = {.communicator = operation_->communicator().id(),
                   .channel = plan_->channel,
                   .sequence = operation_->sequence_,
                   .slice = plan_->first_slice + slice.number,
                   .round = static_cast<uint16_t>(slice.round),
                   .occurrence = plan_->program->occurrence[plan_->program->number(step)]};
    message.fingerprint = plan_->fingerprint;
    message.bytes = bytes;
    message.pending = &slice.pending;
    message.moved = 0;
    message.done = false;
    message.state = 0;
    message.device = operation_->call_.in_device;
  };
  if (step.kind == Step::Kind::kSend) {
    Send& send = slice.sends[slice.sends_used++];
    send.from.clear();
    if (is_compressed(step)) {
      // The ranks that add up keep the sums that the others get.
      const bool keeps = step.a.buffer == Buffer::kOutput && plan_->reduction.valid();
      for (uint32_t i = 0; i < step.count; ++i) {
        Pieces from;
        add_pieces(from, {step.a.buffer, step.a.index + i}, 1, slice);
        slice.compressed.send(from, keeps, send.from);
      }
    } else {
      add_pieces(send.from, step.a, step.count, slice);
    }
    prepare(send, send.from.bytes());
    send.place = place(operation_->call_.shared_input);
    hand_over(peer, send);
    return;
  }
  Recv& recv = slice.recvs[slice.recvs_used++];
  recv.into.clear();
  recv.operand.clear();
  recv.combine = nullptr;
  recv.element_bytes = 1;
  const bool adds = step.kind == Step::Kind::kRecvReduce;
  if (is_compressed(step)) {
    for (uint32_t i = 0; i < step.count; ++i) {
      Pieces into, operand;
      add_pieces(into, {step.dst.buffer, step.dst.index + i}, 1, slice);
      if (adds) add_pieces(operand, {step.a.buffer, step.a.index + i}, 1, slice);
      slice.compressed.receive(std::move(into), std::move(operand),
                               adds ? plan_->reduction.combine : nullptr, recv.into);
    }
  } else {
    add_pieces(recv.into, step.dst, step.count, slice);
    if (adds) {
      add_pieces(recv.operand, step.a, step.count, slice);
      recv.combine = plan_->reduction.combine;
      recv.element_bytes = element_bytes_;
    }
  }
  prepare(recv, recv.into.bytes());
  recv.place = place(operation_->call_.shared_output);
  hand_over(peer, recv);
}

void Execution::compute(const Slice& slice, const Step& step) {
  if (operation_->call_.in_device) return;  // done by the caller
  Pieces into;
  add_pieces(into, step.dst, step.count, slice);
  const size_t bytes = into.bytes();
  if (step.kind == Step::Kind::kCopy) {
    Pieces from;
    add_pieces(from, step.a, step.count, slice);
    for (size_t at = 0; at < bytes;) {
      const Piece target = into.from(at), source = from.from(at);
      const size_t now = std::min(target.bytes, source.bytes);
      if (target.data != source.data) std::memmove(target.data, source.data, now);
      at += now;
    }
    return;
  }
  // The sources may be divided differently: use the length that is contiguous in all.
  const auto slots = plan_->program->schedule.sources(step);
  if (operands_.size() < slots.size()) operands_.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    operands_[i].clear();
    add_pieces(operands_[i], slots[i], 1, slice);
  }
  sources_.resize(slots.size());
  for (size_t at = 0; at < bytes;) {
    const Piece target = into.from(at);
    size_t now = target.bytes;
    for (size_t i = 0; i < slots.size(); ++i) {
      const Piece source = operands_[i].from(at);
      sources_[i] = source.data;
      now = std::min(now, source.bytes);
    }
    plan_->reduction.combine_all(target.data, nullptr, sources_, now / element_bytes_, at_once_);
    at += now;
  }
}

Part Execution::part(Slot slot, uint32_t slice) const {
  const Slot chunk = like(plan_->program->schedule, slot);
  const Layout& layout = chunk.buffer == Buffer::kInput ? input_ : output_;
  return slice_part(layout.bytes(chunk.index), grain_, slice, plan_->slices);
}

void Execution::add_pieces(Pieces& pieces, Slot slot, uint32_t count, const Slice& slice) const {
  for (uint32_t i = 0; i < count; ++i) {
    const Slot one{slot.buffer, slot.index + i};
    const Part range = part(one, slice.number);
    if (slot.buffer == Buffer::kScratch || (slot.buffer == Buffer::kInput && prepares_input())) {
      pieces.add(scratch_place(one, slice), range.end - range.begin);
      continue;
    }
    const Layout& layout = slot.buffer == Buffer::kInput ? input_ : output_;
    layout.visit(one.index, range.begin, range.end,
                 [&](Region region) { pieces.add(region.data, region.bytes); });
  }
}

// Binds a receive from any source to the first rank whose next message on its tag has arrived. A
// later slice uses the source of the first slice.
bool Execution::bind_any_source() {
  if (const auto& first = operation_->begun_by_) operation_->sequence_ = first->sequence_;
  const int source = operation_->begun_by_ ? operation_->begun_by_->source_
                                           : operation_->communicator().answered(
                                                 *self_, plan_->channel, &operation_->sequence_);
  if (source < 0) return false;
  operation_->source_ = source;
  unbound_ = false;
  return true;
}

int Execution::unbound_source(int peer) const {
  return peer == kAnySource ? operation_->source_ : peer;
}

// A send's or receive's message is all of the call's memory; those of collectives have no place.
SharedPlace Execution::place(const std::optional<ExportedRange>& range) const {
  const Call& call = operation_->call_;
  if (plan_->channel == 0 || !range || call.device == nullptr) return {};
  Engine& engine = operation_->communicator().engine();
  return {.range = &*range,
          .device = call.device,
          .index = call.device_index,
          .memory = &engine.peer_memory(),
          .exports = engine.exports(),
          .owner = call.output_owner};
}

template <class OneEnd>
void Execution::hand_over(int peer, OneEnd& message) {
  const Communicator& communicator = operation_->communicator();
  if (peer == communicator.rank()) return self_->post(message);
  communicator.links()[static_cast<size_t>(peer)]->post(message);
}

std::shared_ptr<Operation> Execution::end() {
  stage_.end();
  if (std::exchange(by_device_, nullptr) != nullptr)
    operation_->communicator().skip(operation_->sequence_, 1);
  if (scratch_ != nullptr) pool_->give_back(std::exchange(scratch_, nullptr));
  input_ = output_ = Layout();
  plan_ = nullptr;
  return std::move(operation_);
}

}  // namespace hccl_like

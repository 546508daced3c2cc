#include "collectives/engine/execution.h"

#include <algorithm>
#include <chrono>
#include <cstring>

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
  operation_->started_ = Deadline::Clock::now();
  const auto timeout =
      call.timeout.count() > 0 ? call.timeout : operation_->communicator().timeout();
  // One clock read for both, unless the sum overflows.
  deadline_ = timeout < kCountable ? Deadline::at(operation_->started_ + timeout)
                                   : Deadline::after(timeout);
  laps_started_ = laps_done_ = 0;
  told_.clear();
  unbound_ = call.collective == Collective::kRecv && call.root == kAnySource;
  stage_.off();
  const auto& board = operation_->communicator().board();
  if (board && plan_->channel == 0) {
    board_call_ = operation_->communicator().board_call(call, *plan_, operation_->sequence_);
    board_call_.input = &input_;
    board_call_.output = &output_;
    board_call_.bytes = operation_->bytes_;
    stage_.begin(board_call_, plan_->path, operation_->shown_, std::move(operation_->large_));
  }
  scheduled_ = false;
  if (plan_->path == CallPath::kMessages) begin_schedule();
}

void Execution::begin_schedule() {
  scheduled_ = true;
  const Program& program = *plan_->program;
  const Schedule& schedule = program.schedule;
  const Call& call = operation_->call_;
  if (cuts_payload(call.collective)) {
    input_ = std::move(input_).recut(schedule.chunks());
    output_ = std::move(output_).recut(schedule.chunks());
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
    scratch_stride_ += round_up(bytes / plan_->laps + element_bytes_);
  };
  for (Slot slot : schedule.scratch_like()) reserve(slot);
  for (uint32_t chunk = 0; scales_input() && chunk < schedule.chunks(); ++chunk) reserve(in(chunk));
  if (scratch_stride_ > 0) scratch_ = pool_->take(scratch_stride_ * plan_->window);

  if (laps_.size() < plan_->window) laps_.resize(plan_->window);
  for (Lap& lap : laps_) {
    lap.active = false;
    // Posted messages are pinned, so all of a round are allocated first.
    if (lap.sends.size() < program.most_sends) lap.sends.resize(program.most_sends);
    if (lap.recvs.size() < program.most_recvs) lap.recvs.resize(program.most_recvs);
  }
}

bool Execution::advance() {
  if (unbound_ && !bind_any_source()) return false;
  bool moved = stage_.advance();
  if (stage_.finished()) laps_done_ = plan_->laps;
  if (stage_.holds()) return moved;
  // The call falls back to messages.
  if (!scheduled_) begin_schedule();
  for (uint32_t i = 0; i < plan_->window; ++i) {
    Lap& lap = laps_[i];
    if (!lap.active) {
      if (laps_started_ == plan_->laps) continue;
      start_lap(lap);
      moved = true;
    }
    while (lap.active && lap.pending == 0) {
      ++lap.round;
      moved = true;
      if (lap.round == plan_->program->schedule.rounds())
        finish_lap(lap);
      else
        start_round(lap);
    }
  }
  return moved;
}

void Execution::start_lap(Lap& lap) {
  lap.number = laps_started_++;
  lap.round = 0;
  lap.pending = 0;
  lap.active = true;
  if (scales_input()) scale_input(lap);
  if (plan_->program->schedule.rounds() == 0)
    finish_lap(lap);
  else
    start_round(lap);
}

void Execution::start_round(Lap& lap) {
  lap.sends_used = lap.recvs_used = 0;
  const auto steps = plan_->program->schedule.steps(lap.round);
  // Receives first: the sooner a peer knows that this rank is ready, the sooner it sends.
  for (const Step& step : steps)
    if (step.kind == Step::Kind::kRecv || step.kind == Step::Kind::kRecvReduce) post(lap, step);
  for (const Step& step : steps)
    if (step.kind == Step::Kind::kSend) post(lap, step);
  for (const Step& step : steps)
    if (step.kind == Step::Kind::kCopy || step.kind == Step::Kind::kReduce) compute(lap, step);
}

void Execution::finish_lap(Lap& lap) {
  lap.active = false;
  ++laps_done_;
  if (on_the_way_.result == 1) return;
  for (size_t chunk = 0; chunk < plan_->program->schedule.chunks(); ++chunk) {
    const Part range = part(out(chunk), lap.number);
    output_.visit(chunk, range.begin, range.end, [&](Region region) {
      plan_->reduction.scale(region.data, region.data, region.bytes / element_bytes_,
                             {.result = on_the_way_.result});
    });
  }
}

// The input is read-only: all steps of the lap read the scaled copy in scratch memory.
void Execution::scale_input(const Lap& lap) {
  for (size_t chunk = 0; chunk < plan_->program->schedule.chunks(); ++chunk) {
    const Part range = part(in(chunk), lap.number);
    std::byte* to = scratch_place(in(chunk), lap);
    input_.visit(chunk, range.begin, range.end, [&](Region from) {
      plan_->reduction.scale(to, from.data, from.bytes / element_bytes_,
                             {.input = on_the_way_.input});
      to += from.bytes;
    });
  }
}

// Address of a scratch slot, or of a scaled input chunk; the latter follow the former.
std::byte* Execution::scratch_place(Slot slot, const Lap& lap) const {
  const size_t first =
      slot.buffer == Buffer::kInput ? plan_->program->schedule.scratch_like().size() : 0;
  const auto place = static_cast<size_t>(&lap - laps_.data());
  return scratch_ + place * scratch_stride_ + scratch_offsets_[first + slot.index];
}

void Execution::post(Lap& lap, const Step& step) {
  const int peer = unbound_source(step.peer);
  ++lap.pending;
  const auto prepare = [&](Message& message, size_t bytes) {
    message.tag = {.communicator = operation_->communicator().id(),
                   .channel = plan_->channel,
                   .sequence = operation_->sequence_,
                   .lap = plan_->first_lap + lap.number,
                   .round = static_cast<uint16_t>(lap.round),
                   .occurrence = plan_->program->occurrence[plan_->program->number(step)]};
    message.fingerprint = plan_->fingerprint;
    message.bytes = bytes;
    message.pending = &lap.pending;
    message.moved = 0;
    message.done = false;
    message.state = 0;
    message.device = operation_->call_.in_device;
  };
  if (step.kind == Step::Kind::kSend) {
    Send& send = lap.sends[lap.sends_used++];
    send.from.clear();
    add_pieces(send.from, step.a, step.count, lap);
    prepare(send, send.from.bytes());
    send.place = place(operation_->call_.shared_input);
    hand_over(peer, send);
    return;
  }
  Recv& recv = lap.recvs[lap.recvs_used++];
  recv.into.clear();
  recv.operand.clear();
  recv.combine = nullptr;
  recv.element_bytes = 1;
  add_pieces(recv.into, step.dst, step.count, lap);
  if (step.kind == Step::Kind::kRecvReduce) {
    add_pieces(recv.operand, step.a, step.count, lap);
    recv.combine = plan_->reduction.combine;
    recv.element_bytes = element_bytes_;
  }
  prepare(recv, recv.into.bytes());
  recv.place = place(operation_->call_.shared_output);
  hand_over(peer, recv);
}

void Execution::compute(const Lap& lap, const Step& step) {
  if (operation_->call_.in_device) return;  // done by the caller
  Pieces into;
  add_pieces(into, step.dst, step.count, lap);
  const size_t bytes = into.bytes();
  if (step.kind == Step::Kind::kCopy) {
    Pieces from;
    add_pieces(from, step.a, step.count, lap);
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
    add_pieces(operands_[i], slots[i], 1, lap);
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

Part Execution::part(Slot slot, uint32_t lap) const {
  const Slot chunk = like(plan_->program->schedule, slot);
  const Layout& layout = chunk.buffer == Buffer::kInput ? input_ : output_;
  return lap_part(layout.bytes(chunk.index), element_bytes_, lap, plan_->laps);
}

void Execution::add_pieces(Pieces& pieces, Slot slot, uint32_t count, const Lap& lap) const {
  for (uint32_t i = 0; i < count; ++i) {
    const Slot one{slot.buffer, slot.index + i};
    const Part range = part(one, lap.number);
    if (slot.buffer == Buffer::kScratch || (slot.buffer == Buffer::kInput && scales_input())) {
      pieces.add(scratch_place(one, lap), range.end - range.begin);
      continue;
    }
    const Layout& layout = slot.buffer == Buffer::kInput ? input_ : output_;
    layout.visit(one.index, range.begin, range.end,
                 [&](Region region) { pieces.add(region.data, region.bytes); });
  }
}

// Binds a receive from any source to the first rank whose next message on its tag has arrived. A
// later lap uses the source of the first lap.
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
  if (scratch_ != nullptr) pool_->give_back(std::exchange(scratch_, nullptr));
  input_ = output_ = Layout();
  plan_ = nullptr;
  return std::move(operation_);
}

bool Execution::waits_for(int peer) const {
  const auto peers = waiting_for();
  return std::find(peers.begin(), peers.end(), peer) != peers.end();
}

std::vector<int> Execution::waiting_for() const {
  std::vector<int> peers;
  if (unbound_) return peers;
  if (stage_.holds()) return stage_.waiting_for();
  for (uint32_t i = 0; i < plan_->window && i < laps_.size(); ++i) {
    const Lap& lap = laps_[i];
    if (!lap.active || lap.pending == 0) continue;
    size_t sends = 0, recvs = 0;
    for (const Step& step : plan_->program->schedule.steps(lap.round)) {
      const bool is_send = step.kind == Step::Kind::kSend;
      if (!is_send && step.kind != Step::Kind::kRecv && step.kind != Step::Kind::kRecvReduce)
        continue;
      const Message& message = is_send ? static_cast<const Message&>(lap.sends[sends++])
                                       : static_cast<const Message&>(lap.recvs[recvs++]);
      if (!message.done) peers.push_back(unbound_source(step.peer));
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

CallNotice Execution::notice() const {
  return {
      .tag = {.communicator = operation_->communicator().id(), .sequence = operation_->sequence()},
      .fingerprint = plan_->fingerprint,
      .bytes = operation_->bytes_};
}

std::string Execution::whereabouts() const {
  if (unbound_) return "waiting for a message from any rank";
  std::string text;
  for (uint32_t i = 0; i < plan_->window && text.empty() && !stage_.holds(); ++i) {
    const Lap& lap = laps_[i];
    if (!lap.active) continue;
    text = "in round " + std::to_string(lap.round + 1) + " of " +
           std::to_string(plan_->program->schedule.rounds());
    if (plan_->laps > 1)
      text += " of lap " + std::to_string(lap.number + 1) + " of " + std::to_string(plan_->laps);
  }
  const auto peers = waiting_for();
  if (peers.empty()) return text.empty() ? "before its first round" : text;
  if (text.empty() && !stage_.holds()) text = "before its first round";
  if (!text.empty()) text += ", ";
  text += peers.size() == 1 ? "waiting for rank " : "waiting for ranks ";
  for (size_t i = 0; i < peers.size(); ++i) text += (i ? ", " : "") + std::to_string(peers[i]);
  return text;
}

}  // namespace hccl_like

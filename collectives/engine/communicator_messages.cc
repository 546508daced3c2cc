// Calls by messages: the choice of an algorithm and its program; algorithms of users. Messages
// between two ranks: plans, numbers, and the fast path of short ones.
#include <algorithm>
#include <bit>

#include "collectives/call/fingerprint.h"
#include "collectives/compression/compressed_calls.h"
#include "collectives/engine/communicator.h"

namespace hccl_like {
namespace {

bool is_message(const Call& call) {
  return call.collective == Collective::kSend || call.collective == Collective::kRecv;
}

const Layout& payload(const Call& call) {
  return call.collective == Collective::kSend ? call.input : call.output;
}

}  // namespace

// The link of a message between local peers, else null.
Link* Communicator::shared_memory_link(const Call& call) const {
  if (call.root < 0 || call.root >= size()) return nullptr;
  Link* link = identity_.links[static_cast<size_t>(call.root)];
  return link != nullptr && link->transport() == "shm" ? link : nullptr;
}

// The link of a message that needs no operation, else null.
Link* Communicator::short_message_link(const Call& call) const {
  Link* link = is_message(call) ? shared_memory_link(call) : nullptr;
  return link != nullptr && payload(call).total_bytes() <= link->eager_bytes() ? link : nullptr;
}

// Of messages, only long ones, which links move directly (transport/rendezvous/rendezvous.h).
bool Communicator::uses_shared_memory(const Call& call) const {
  if (!is_message(call))
    return board() && !board_bytes(call, size(), call.uneven ? Chunks::kPairs : Chunks::kEqual);
  const size_t bytes = payload(call).total_bytes();
  return bytes > engine_.config().shm_eager_bytes &&
         (call.root == kAnySource || shared_memory_link(call));
}

Plan Communicator::message_plan(const Call& call) {
  Plan plan;
  plan.channel = kMessages | call.tag;
  plan.program = &program(*algorithms(call.collective).data(), call.root);
  plan.fingerprint = fingerprint(named(call), call.precedes ? kShowsMemory : 0);
  return plan;
}

// Uses the first slice's number, since ranks without a part in this slice do not count it.
std::shared_ptr<Operation> Communicator::prepare_slice(std::shared_ptr<const Operation> begun_by,
                                                       Call call, uint32_t slice, size_t whole) {
  if (auto error = failure()) throw Exception(std::move(*error));
  std::lock_guard lock(mutex_);
  Plan plan = message_plan(call);
  if (begun_by->plan_.channel == 0) plan.channel = kSlicesOfCollectives;
  plan.fingerprint = fingerprint(call, mix(whole, slice));
  plan.first_slice = slice;
  auto operation =
      std::make_shared<Operation>(shared_from_this(), std::move(call), plan, begun_by->sequence());
  operation->begun_by_ = std::move(begun_by);
  return operation;
}

// A receive from any source gets its number when it is answered; until then, its position.
uint32_t Communicator::message_number(const Call& call, uint32_t channel) {
  if (call.root == kAnySource) return asked_(0, channel)++;
  return (call.collective == Collective::kSend ? sent_ : received_)(call.root, channel)++;
}

void Communicator::begin(Engine::CallerDriven& caller_driven, const Call& call, Link* link) {
  const uint32_t channel = kMessages | call.tag;
  const auto post = [&](CallerMessage& posted, auto& message, Pieces& pieces) {
    const Layout& layout = payload(call);
    layout.visit(0, 0, layout.total_bytes(),
                 [&](Region region) { pieces.add(region.data, region.bytes); });
    message.tag = {.communicator = identity_.id, .channel = channel};
    message.fingerprint = fingerprint(call, 0);
    message.bytes = layout.total_bytes();
    message.caller_driven = true;
    {
      std::lock_guard lock(mutex_);
      message.tag.sequence = message_number(call, channel);
    }
    caller_driven.post(posted);
  };
  if (call.collective == Collective::kSend) {
    CallerMessage& posted = caller_driven.next<Send>(call, link);
    Send& send = std::get<Send>(posted.message);
    post(posted, send, send.from);
  } else {
    CallerMessage& posted = caller_driven.next<Recv>(call, link);
    Recv& recv = std::get<Recv>(posted.message);
    post(posted, recv, recv.into);
  }
}

// The unfinished rest as an operation; null if complete.
std::shared_ptr<Operation> Communicator::rest_of(CallerMessage& posted) {
  const Message& message = posted.common();
  if (message.done) return nullptr;
  std::lock_guard lock(mutex_);
  return std::make_shared<Operation>(shared_from_this(), *posted.call, message_plan(*posted.call),
                                     message.tag.sequence);
}

std::shared_ptr<Operation> Communicator::pass(const Call& call, bool may_wait) {
  if (Link* link = short_message_link(call)) {
    Engine::CallerDriven caller_driven(engine_, *this, 1);
    if (caller_driven.holds()) {
      begin(caller_driven, call, link);
      caller_driven.finish(may_wait);
      return rest_of(caller_driven.messages().front());
    }
  }
  return prepare(call);
}

// Sends first: two ranks that both wait for a receive before they send would deadlock.
void Communicator::run(std::span<const Call> calls) {
  engine_.count_call();
  for (const Call& call : calls) check(call);
  std::vector<const Call*> others;
  std::vector<std::shared_ptr<Operation>> rest;
  {
    Engine::CallerDriven caller_driven(engine_, *this, calls.size());
    for (const bool sends : {true, false})
      for (const Call& call : calls) {
        if ((call.collective == Collective::kSend) != sends) continue;
        Link* const link = caller_driven.holds() ? short_message_link(call) : nullptr;
        if (link != nullptr)
          begin(caller_driven, call, link);
        else
          others.push_back(&call);
      }
    if (caller_driven.holds()) {
      caller_driven.finish(/*may_wait=*/others.empty());
      for (CallerMessage& posted : caller_driven.messages())
        if (auto operation = rest_of(posted)) rest.push_back(std::move(operation));
    }
  }
  for (const Call* call : others) rest.push_back(prepare(*call));
  if (rest.empty()) return;
  engine_.launch(rest, /*waited_for=*/true);
  engine_.wait(rest, Deadline::never());
  for (const auto& operation : rest)
    if (const Error* error = operation->error()) throw Exception(*error);
}

void Communicator::add_own(std::shared_ptr<const Algorithm> algorithm) {
  std::lock_guard lock(mutex_);
  all_own_.push_back(std::move(algorithm));
  choices_.clear();
  find_named();
}

const Algorithm* Communicator::own(Collective collective) const {
  return own_[static_cast<size_t>(collective)].load(std::memory_order_acquire);
}

// A user's algorithm serves the group that it was made for, not the group's parts.
ForcedAlgorithms Communicator::without_own(ForcedAlgorithms forced) {
  std::erase_if(forced.choices, [](const ForcedAlgorithms::Choice& choice) {
    const auto collective = collective_named(choice.collective);
    return collective && find_algorithm(*collective, choice.algorithm) == nullptr;
  });
  return forced;
}

// With mutex_ held.
void Communicator::find_named() {
  for (size_t i = 0; i < named_.size(); ++i) {
    const auto collective = static_cast<Collective>(i);
    const std::string_view wanted = forced_.find(hccl_like::name(collective));
    const auto found = std::ranges::find_if(all_own_, [&](const auto& algorithm) {
      return algorithm->collective == collective && algorithm->name == wanted;
    });
    named_[i] = !wanted.empty();
    own_[i] = found == all_own_.end() ? nullptr : found->get();
  }
}

void Communicator::set_compression(Compression compression) {
  if (compression != Compression::kNone && deterministic_)
    throw_misuse("results cannot be both deterministic and compressed with " +
                 std::string(hccl_like::name(compression)) +
                 ", whose rounding depends on the hosts of the ranks; leave out one of the two");
  codec_ = codec(compression);
}

const Choice& Communicator::choice(const Call& call, size_t bytes, bool uneven, bool compressed) {
  const Collective collective = call.collective;
  const size_t element = size_of(call.type);
  const uint64_t index = mix(mix(bytes, element), (static_cast<uint64_t>(collective) * 2 + uneven) |
                                                      uint64_t{compressed} << 32);
  const auto found = choices_.find(index);
  if (found != choices_.end()) return found->second;
  const Config& config = engine_.config();
  const bool several_hosts = topology_.hosts.count() > 1;
  ChooseOptions options{
      .forced = forced_.find(hccl_like::name(collective)),
      .own = own(collective),
      .slice_bytes = several_hosts ? config.remote_slice_bytes : config.slice_bytes,
      .slice_window = topology_.slices_at_once(config.slice_window),
      .uneven = uneven,
      .deterministic = deterministic_,
      .simulate = true};
  if (compressed)
    options.forced = compressed_algorithm(collective, topology_.hosts, options.forced);
  const bool one_order = options.deterministic && reduces(collective);
  if (options.forced.empty() && identity_.profile && !one_order) {
    const Algorithm* best =
        identity_.profile->find(collective, topology_.hosts, uneven ? 0 : bytes);
    if (best != nullptr && !(best->equal_chunks && uneven)) options.forced = best->name;
  }
  if (options.forced.empty() && several_hosts)
    options.forced = decision(collective, uneven ? 0 : bytes, element, options);
  const Choice made = choose(collective, bytes, element, topology_, options);
  log_trace([&] { return "group " + identity_.name + ": " + explain(made); });
  return choices_.emplace(index, made).first->second;
}

// Simulating schedules takes milliseconds, so one result covers an eighth of an octave of sizes.
std::string_view Communicator::decision(Collective collective, uint64_t bytes, size_t element,
                                        const ChooseOptions& options) {
  const int dropped = std::max(0, static_cast<int>(std::bit_width(bytes)) - 4);
  const uint64_t about = ((bytes >> dropped) + (dropped > 0)) << dropped;
  const uint64_t index =
      mix(mix(about, element), static_cast<uint64_t>(collective) * 2 + options.uneven);
  const auto found = decisions_.find(index);
  if (found != decisions_.end()) return found->second->name;
  const Choice made = choose(collective, about, element, topology_, options);
  return decisions_.emplace(index, made.algorithm).first->second->name;
}

const Program& Communicator::program(const Algorithm& algorithm, int root) {
  auto& slot =
      programs_[mix(reinterpret_cast<uintptr_t>(&algorithm), static_cast<uint64_t>(root + 1))];
  if (slot) return *slot;
  Schedule schedule = schedule_of(algorithm, rank(), topology_.hosts, root);
  // Two ranks add on arrival, where the sum cannot be scaled before it is rounded.
  const bool one_order = deterministic_ && reduces(algorithm.collective);
  if (one_order && size() == 2) schedule = sums_at_once(schedule, rank());
  slot = std::make_unique<Program>(std::move(schedule),
                                   algorithm.sums_at_once && (size() > 2 || one_order));
  return *slot;
}

}  // namespace hccl_like

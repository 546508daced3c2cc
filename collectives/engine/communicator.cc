#include "collectives/engine/communicator.h"

#include <algorithm>

#include "collectives/call/fingerprint.h"
#include "collectives/compression/compressed_calls.h"
#include "core/machine/backoff.h"
#include "transport/link/traffic.h"

namespace hccl_like {
namespace {

// Payload as far as all ranks know it; the basis of every common decision.
size_t common_bytes(const Call& call, int size) {
  if (call.uneven) return 0;
  // Only the root knows the output of a gather and the input of a scatter.
  const Semantics meaning = semantics(call.collective);
  const size_t in = call.input.total_bytes(), out = call.output.total_bytes();
  const auto ranks = static_cast<size_t>(size);
  if (meaning.to_root && meaning.input == Chunking::kOwn) return in * ranks;
  if (meaning.from_root && meaning.output == Chunking::kOwn) return out * ranks;
  return std::max(in, out);
}

// Sizes that must be equal and the path that they select, as a fingerprint detail.
uint64_t sizes_and_path(const Call& call, Chunks chunks, CallPath path, int size) {
  uint64_t sizes = mix(common_bytes(call, size),
                       static_cast<uint64_t>(chunks) << 8 | static_cast<uint64_t>(path));
  if (chunks != Chunks::kKnown) return sizes;
  for (int i = 0; i < size; ++i) sizes = mix(sizes, chunk_side(call).bytes(static_cast<size_t>(i)));
  return sizes;
}

}  // namespace

std::shared_ptr<Communicator> Communicator::create(Engine& engine, Identity identity) {
  std::shared_ptr<Communicator> communicator(new Communicator(engine, std::move(identity)));
  engine.add(communicator);
  return communicator;
}

Communicator::Communicator(Engine& engine, Identity identity)
    : engine_(engine),
      identity_(std::move(identity)),
      timeout_(identity_.timeout),
      deterministic_(engine.config().deterministic) {
  topology_ = topology_of(identity_.members);
  device_mix_ = device_mix_of(identity_.members);
  maps_memory_ = std::ranges::all_of(
      identity_.members, [](const ProcessRecord& member) { return member.commons.has_value(); });
  same_host_ = {.cores = topology_.cores_per_host,
                .peer_memory = &engine_.peer_memory(),
                .known_memory = &known_memory_,
                .thread_pool = &engine_.thread_pool()};
  force(engine_.config().algo);
  set_compression(engine_.config().compression);
}

Communicator::~Communicator() { engine_.remove(*this); }

void Communicator::check(const Call& call) const {
  const bool any = call.collective == Collective::kRecv && call.root == kAnySource;
  const bool peer_matters = has_root(call.collective) || is_point_to_point(call.collective);
  if (peer_matters && !any && (call.root < 0 || call.root >= size()))
    throw_misuse("rank " + std::to_string(call.root) + " is not in group " + identity_.name +
                 ", which has ranks 0 to " + std::to_string(size() - 1));
  if (reduces(call.collective) && !reduction(call.type, call.op).valid())
    throw_error(ErrorCode::kUnsupported, std::string(hccl_like::name(call.op)) +
                                             " is not defined for " +
                                             std::string(hccl_like::name(call.type)) +
                                             "; convert the tensor to another type first");
}

// Checks the only pair of sizes that no message compares. On an error the group fails, since the
// other ranks already wait.
void Communicator::check_own_part(const Call& call) {
  if (call.collective != Collective::kAllToAll) return;
  const auto own = static_cast<size_t>(rank());
  const size_t given = call.input.bytes(own), taken = call.output.bytes(own);
  if (given == taken) return;
  const std::string what = "rank " + std::to_string(rank()) + " gives itself " +
                           std::to_string(given) + " bytes and expects " + std::to_string(taken) +
                           " bytes from itself; its own input and output split must agree";
  Error error{ErrorCode::kMismatch, what};
  engine_.abort(*this, error);
  throw Exception(std::move(error));
}

void Communicator::force(ForcedAlgorithms algorithms) {
  std::lock_guard lock(mutex_);
  forced_ = std::move(algorithms);
  choices_.clear();
  find_named();
}

// `detail`: further values that must be equal on all ranks.
uint64_t Communicator::fingerprint(const Call& call, uint64_t detail) const {
  const bool p2p = is_point_to_point(call.collective);
  if (call.slice.alike) detail = mix(detail, uint64_t{call.slice.count} << 32 | call.slice.number);
  return Fingerprint{
      .collective = p2p ? Collective::kSend : call.collective,
      .type = call.type,
      .op = call.op,
      .reduces = reduces(call.collective),
      .root = has_root(call.collective) ? call.root : -1,
      .detail = p2p ? detail : with_factor(detail, call.factor),
      .site = engine_.config().call_sites && !p2p ? std::optional(call.site) : std::nullopt}
      .encode();
}

// For calls that use the board.
uint64_t Communicator::meeting_fingerprint(const Call& call, const Plan& plan) const {
  return fingerprint(call, sizes_and_path(call, plan.chunks, plan.path, size()));
}

CallPathOptions Communicator::path_options(Collective collective) const {
  return {.board = identity_.board != nullptr,
          .maps_memory = maps_memory_,
          .forced = named_[static_cast<size_t>(collective)],
          .direct = engine_.config().direct,
          .deterministic = deterministic_,
          .own = own(collective) != nullptr};
}

CallPath Communicator::path(const Call& call, Chunks chunks) const {
  return call_path(call, size(), chunks, path_options(call.collective));
}

BoardCall Communicator::board_call(const Call& call, const Plan& plan, uint32_t number) const {
  return {.board = identity_.board.get(),
          .call = &call,
          .plan = &plan,
          .input = &call.input,
          .output = &call.output,
          .resources = &same_host_,
          .number = number};
}

void Communicator::set_reduction(Plan& plan, const Call& call) const {
  if (!reduces(call.collective)) return;
  plan.reduction = reduction(call.type, call.op);
  plan.scaling = scaling(call.type, call.op, size(), call.factor);
}

std::shared_ptr<Operation> Communicator::prepare(Call call, std::optional<uint32_t> reserved) {
  if (auto error = failure()) throw Exception(std::move(*error));
  engine_.count_call();
  check(call);
  check_own_part(call);
  const bool p2p = is_point_to_point(call.collective);
  std::lock_guard lock(mutex_);
  if (p2p) {
    const Plan plan = message_plan(call);
    const uint32_t number = message_number(call, plan.channel);
    return std::make_shared<Operation>(shared_from_this(), std::move(call), plan, number);
  }
  Plan plan;
  plan.chunks = chunks_of(call, size());
  const Choice& choice = choose_messages(call, plan);
  set_reduction(plan, call);
  const uint64_t algorithm = key_of(*choice.algorithm);
  plan.path = path(call, plan.chunks);
  if (call.precedes) {
    const Call& next = *call.precedes;
    const Chunks chunks = chunks_of(next, size());
    plan.fingerprint = fingerprint(next, ~sizes_and_path(next, chunks, plan.path, size()));
  } else if (plan.path == CallPath::kMessages) {
    uint64_t how = mix(mix(common_bytes(call, size()), plan.slices), algorithm);
    if (plan.codec != nullptr) how = mix(how, plan.codec->block_bytes);
    // Reserved numbers are not prepared in order, and come after a call in which all ranks met.
    plan.fingerprint = fingerprint(call, mix(how, reserved ? 0 : roots_));
    // The whole fingerprint: a gather and a scatter with one root may exchange no message either.
    if (has_root(call.collective) && !reserved) roots_ = mix(roots_, plan.fingerprint);
  } else {
    plan.fingerprint = meeting_fingerprint(call, plan);
  }
  const uint32_t number = reserved ? *reserved : sequence_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t users = named(call).number;
  log_.add(number, plan.fingerprint, payload_bytes(named(call)),
           users != 0 ? users : uint64_t{number} + 1);
  return std::make_shared<Operation>(shared_from_this(), std::move(call), plan, number);
}

std::shared_ptr<Operation> Communicator::prepare_exchange(Call call, Region mine, Region all) {
  check(call);
  Call exchange{.collective = Collective::kAllGather,
                .input = Layout::single({&mine, 1}, static_cast<size_t>(rank()), 1),
                .output = Layout::even(all, static_cast<size_t>(size()), 1)};
  exchange.timeout = call.timeout;
  exchange.precedes = std::make_shared<const Call>(std::move(call));
  return prepare(std::move(exchange));
}

uint32_t Communicator::reserve(uint32_t count) {
  std::lock_guard lock(mutex_);
  return sequence_.fetch_add(count, std::memory_order_relaxed);
}

void Communicator::skip(uint32_t first, uint32_t count) {
  Board* const board = identity_.board.get();
  if (board == nullptr || !board->is_open()) return;
  for (uint32_t i = 0; i < count; ++i) board->done(first + i);
}

// Adds the messages that make a call to its plan.
const Choice& Communicator::choose_messages(const Call& call, Plan& plan) {
  const size_t bytes = common_bytes(call, size());
  const Codec* const codec = codec_.load(std::memory_order_relaxed);
  if (codec != nullptr && is_compressed(call, bytes, topology_.hosts)) plan.codec = codec;
  const Choice& choice =
      this->choice(call, bytes, plan.chunks != Chunks::kEqual, plan.codec != nullptr);
  plan.program = &program(*choice.algorithm, call.root);
  plan.slices = choice.slices;
  plan.window = std::min(plan.slices, topology_.slices_at_once(engine_.config().slice_window));
  return choice;
}

void Communicator::launch(std::span<const std::shared_ptr<Operation>> operations, bool waited_for) {
  engine_.launch(operations, waited_for);
}

Communicator::Tried Communicator::try_run(const Call& call, bool may_wait) {
  engine_.count_call();
  if (is_point_to_point(call.collective)) {
    auto rest = pass(call, may_wait);
    const uint32_t sequence = rest ? rest->sequence() : 0;
    return {.over = rest == nullptr, .sequence = sequence, .rest = std::move(rest)};
  }
  Board* board = identity_.board.get();
  if (board == nullptr || !board->is_open() || has_failed()) return {};
  Plan plan;
  plan.chunks = chunks_of(call, size());
  plan.path = path(call, plan.chunks);
  if (plan.path == CallPath::kMessages) return {};
  check(call);
  check_own_part(call);
  set_reduction(plan, call);
  plan.fingerprint = meeting_fingerprint(call, plan);
  uint32_t number = sequence_.load(std::memory_order_relaxed);
  do {
    if (!board->writable(number)) return {};
  } while (!sequence_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
  BoardCall on_board = board_call(call, plan, number);
  if (plan.path == CallPath::kLarge) return try_large(call, on_board, plan, may_wait);
  Backoff backoff = engine_.backoff();
  on_board.show();
  if (others_are_there(on_board, backoff, may_wait)) {
    on_board.finish();
    board->done(number);
    return {.over = true, .sequence = number, .rest = nullptr};
  }
  auto operation = std::make_shared<Operation>(shared_from_this(), call, plan, number);
  operation->shown_ = true;
  return {.over = false, .sequence = number, .rest = std::move(operation)};
}

void Communicator::run(const Call& call) {
  Tried tried = try_run(call, /*may_wait=*/true);
  if (tried.over) return;
  const std::shared_ptr<Operation> operation = tried.rest ? std::move(tried.rest) : prepare(call);
  engine_.launch({&operation, 1}, /*waited_for=*/true);
  engine_.wait(*operation, Deadline::never());
  if (const Error* error = operation->error()) throw Exception(*error);
}

std::optional<CallLog::Entry> Communicator::called(uint32_t sequence) const {
  std::lock_guard lock(mutex_);
  return log_.find(sequence);
}

std::shared_ptr<Communicator> Communicator::split(std::span<const int> ranks, std::string name) {
  Identity child;
  child.name = std::move(name);
  return split(ranks, std::move(child));
}

std::shared_ptr<Communicator> Communicator::split(std::span<const int> ranks, Identity child) {
  uint32_t number;
  {
    std::lock_guard lock(mutex_);
    number = splits_++;
  }
  if (ranks.empty()) return nullptr;
  child.rank = -1;
  child.timeout = timeout();
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size())
      throw_misuse("rank " + std::to_string(rank) + " is not in group " + identity_.name +
                   ", which has ranks 0 to " + std::to_string(size() - 1));
    const auto index = static_cast<size_t>(rank);
    if (rank == this->rank()) child.rank = static_cast<int>(child.members.size());
    child.members.push_back(identity_.members[index]);
    child.links.push_back(identity_.links[index]);
  }
  if (child.rank < 0)
    throw_misuse("rank " + std::to_string(rank()) + " of group " + identity_.name +
                 " is not in its own list; pass an empty list to stay out");
  child.id = mix(mix(identity_.id, number), static_cast<uint64_t>(ranks[0]));
  child.profile = identity_.profile;
  child.board = Board::split(identity_.board, child.id, ranks, number);
  return create(engine_, std::move(child));
}

std::vector<std::string> Communicator::routes() const {
  std::vector<std::string> routes;
  for (const Link* link : identity_.links)
    routes.push_back(link == nullptr ? "" : engine_.describe(*link));
  return routes;
}

void Communicator::count_messages(CounterFile& counters) const {
  for (int rank = 0; rank < size(); ++rank) {
    Link* const link = identity_.links[static_cast<size_t>(rank)];
    if (link == nullptr) continue;
    Traffic& traffic = link->traffic();
    if (auto* peer = traffic.counted_in())
      peer->number.store(static_cast<uint64_t>(rank) + 1, std::memory_order_relaxed);
    else if (auto* slot = counters.add_peer(rank))
      traffic.count_in(*slot);
  }
}

uint32_t Communicator::sequence() const { return sequence_.load(std::memory_order_relaxed); }

Communicator::Messages Communicator::messages() const {
  std::lock_guard lock(mutex_);
  return {.sent = sent_.by_peer(), .received = received_.by_peer()};
}

int Communicator::rank_of(const Link& link) const {
  const auto found = std::find(identity_.links.begin(), identity_.links.end(), &link);
  return found == identity_.links.end() ? -1 : static_cast<int>(found - identity_.links.begin());
}

int Communicator::answered(const SelfMessages& self, uint32_t channel, uint32_t* sequence) {
  std::lock_guard lock(mutex_);
  if (*sequence != answered_(0, channel)) return -1;  // an earlier receive gets the next message
  for (int peer = 0; peer < size(); ++peer) {
    const Link* link = identity_.links[static_cast<size_t>(peer)];
    uint32_t& next = received_(peer, channel);
    const Tag tag{.communicator = identity_.id, .channel = channel, .sequence = next};
    size_t bytes = 0;
    if (!(link == nullptr ? self.arrived(tag, &bytes) : link->arrived(tag, &bytes))) continue;
    *sequence = next++;
    ++answered_(0, channel);
    return peer;
  }
  return -1;
}

}  // namespace hccl_like

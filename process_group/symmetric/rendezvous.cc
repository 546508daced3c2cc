#include "process_group/symmetric/rendezvous.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/base/result.h"
#include "transport/bootstrap/host.h"
#include "transport/security/job_key.h"
#include "transport/security/random.h"

namespace hccl_like {
namespace {

// A rank's offer. Trivially copyable: ranks share a host, and checks detect another build.
struct AllocationOffer {
  uint64_t version = 1;
  std::array<char, 36> device{};  // name: PrivateUse1 is another device on another rank
  std::array<char, 180> host{};
  AllocationToken memory;
  SharedMemoryToken signals;        // created by rank 0 for all
  std::array<char, 400> problem{};  // why this rank has no offer
};
static_assert(std::is_trivially_copyable_v<AllocationOffer>);

template <size_t kSize>
void put_text(std::array<char, kSize>& field, const std::string& text) {
  text.copy(field.data(), kSize - 1);
}
template <size_t kSize>
std::string text_of(const std::array<char, kSize>& field) {
  return {field.data(), strnlen(field.data(), kSize)};
}

std::string listed(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) out += i + 1 == ranks.size() ? " and " : ", ";
    out += std::to_string(ranks[i]);
  }
  return out;
}

class Exchange {
 public:
  Exchange(Store& store, const Handshake& handshake, Deadline deadline)
      : store_(store), handshake_(handshake), deadline_(deadline) {}

  // Exchanges random numbers, which bind all later values to this rendezvous.
  void open() {
    tell("hello", random_hex(kRandomBytes));
    std::string all;
    for (const std::string& number : hear("hello")) {
      if (number.size() != 2 * kRandomBytes)
        throw_error(ErrorCode::kMismatch,
                    "rank " + std::to_string(all.size() / (2 * kRandomBytes)) + " of group '" +
                        handshake_.group + "' runs another version of hccl-like");
      all += number;
    }
    scope_ += '/' + all;
  }

  void tell(const char* what, const std::string& value) {
    const std::string at = key(what, handshake_.rank);
    store_.set(at, proof::seal(job_, at + scope_, value));
  }

  // The values of all ranks. Throws kTimeout that names all ranks missing at the deadline.
  std::vector<std::string> hear(const char* what) {
    std::vector<std::string> heard;
    std::vector<int> missing;
    for (int rank = 0; rank < handshake_.ranks; ++rank) {
      try {
        const std::string at = key(what, rank);
        proof::Opened told = proof::open(job_, at + scope_, store_.get(at, deadline_));
        if (!told.proved) not_authentic(rank);
        heard.push_back(std::move(told.value));
      } catch (const Exception& error) {
        if (error.code() != ErrorCode::kTimeout) throw;
        missing.push_back(rank);  // the deadline has passed: only polls the others
      }
    }
    if (missing.empty()) return heard;
    throw Exception(Error{ErrorCode::kTimeout,
                          listed(missing) + " of group '" + handshake_.group +
                              "' did not come to the rendezvous, which all ranks have to call",
                          missing.front()});
  }

 private:
  std::string key(const char* what, int rank) const {
    return handshake_.prefix + "/" + what + "/" + std::to_string(rank);
  }

  [[noreturn]] void not_authentic(int rank) const {
    throw Exception(
        Error{ErrorCode::kMismatch,
              "what rank " + std::to_string(rank) + " of group '" + handshake_.group +
                  "' offers in the store is not authentic: it has another secret "
                  "than this rank, was told in another rendezvous, or somebody else wrote "
                  "there",
              rank});
  }

  static constexpr size_t kRandomBytes = 16;

  Store& store_;
  const JobKey job_ = JobKey::of(Config::from_environment());
  const Handshake& handshake_;
  const Deadline deadline_;
  std::string scope_ = '/' + handshake_.communicator;  // authenticated with every value
};

// Each channel uses one pad word per rank. The operators have one extra channel.
int channels_of(const Handshake& handshake, size_t pad_bytes) {
  return static_cast<int>(pad_bytes / (sizeof(uint32_t) * static_cast<size_t>(handshake.ranks))) +
         1;
}

std::string bytes_of(const AllocationOffer& offer) {
  return {reinterpret_cast<const char*>(&offer), sizeof offer};
}

// Throws if the offers are incompatible.
std::vector<AllocationOffer> fitting(const std::vector<std::string>& texts,
                                     const AllocationOffer& own) {
  std::vector<AllocationOffer> offers;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    AllocationOffer offer;
    if (texts[rank].size() != sizeof offer)
      throw_error(ErrorCode::kMismatch, who + " runs another version of hccl-like");
    std::memcpy(&offer, texts[rank].data(), sizeof offer);
    if (offer.version != own.version)
      throw_error(ErrorCode::kMismatch, who + " runs another version of hccl-like");
    if (const std::string problem = text_of(offer.problem); !problem.empty())
      throw_error(ErrorCode::kAborted, who + " has no memory to share: " + problem);
    if (text_of(offer.host) != text_of(own.host))
      throw_error(ErrorCode::kUnsupported,
                  who +
                      " is on another host, and symmetric memory is mapped: make a group of the "
                      "ranks of one host for it");
    if (text_of(offer.device) != text_of(own.device))
      throw_error(ErrorCode::kMismatch, who + " passed a tensor on a device of type '" +
                                            text_of(offer.device) + "', and this rank one on '" +
                                            text_of(own.device) +
                                            "'; make a group of the ranks of one type for it");
    if (offer.memory.buffer_bytes != own.memory.buffer_bytes)
      throw_error(ErrorCode::kMismatch, who + " has " + std::to_string(offer.memory.buffer_bytes) +
                                            " bytes and this rank " +
                                            std::to_string(own.memory.buffer_bytes) +
                                            "; all ranks must allocate the same");
    if (offer.memory.pad_bytes != own.memory.pad_bytes)
      throw_error(ErrorCode::kMismatch,
                  who +
                      " has a signal pad of another size; call set_signal_pad_size with the same "
                      "number on all ranks");
    offers.push_back(offer);
  }
  return offers;
}

Acquaintance meet(const std::vector<AllocationOffer>& offers, const Handshake& handshake,
                  const Allocation& allocation, SharedMemory signals) {
  Acquaintance result;
  const auto on_failure_of = [&](int rank, auto&& attempt) {
    try {
      attempt();
    } catch (const Exception& error) {
      throw Exception(Error{error.code(),
                            "the memory of rank " + std::to_string(rank) +
                                " cannot be mapped: " + error.error().message,
                            rank});
    }
  };
  on_failure_of(0, [&] {
    if (handshake.rank != 0) signals = SharedMemory::open(offers[0].signals);
    result.signals =
        std::make_shared<Signals>(std::move(signals), handshake.group, handshake.rank,
                                  handshake.ranks, channels_of(handshake, allocation.pad_bytes()));
  });
  for (int rank = 0; rank < handshake.ranks; ++rank) {
    auto& peer = result.peers.emplace_back();
    if (rank == handshake.rank) continue;
    on_failure_of(rank, [&] {
      peer = std::make_unique<PeerAllocation>(allocation.access(),
                                              offers[static_cast<size_t>(rank)].memory);
    });
  }
  return result;
}

}  // namespace

Acquaintance rendezvous(Store& store, const Handshake& handshake, const Allocation& allocation,
                        Deadline deadline) {
  Exchange exchange(store, handshake, deadline);
  SharedMemory signals;
  AllocationOffer own;
  put_text(own.device, c10::DeviceTypeName(allocation.access().device().type(), true));
  put_text(own.host, host_id());
  try {
    own.memory = allocation.token();
    if (handshake.rank == 0) {
      const int channels = channels_of(handshake, allocation.pad_bytes());
      signals = SharedMemory::create(Signals::bytes(handshake.ranks, channels));
      own.signals = signals.token();
    }
  } catch (const Exception& error) {
    put_text(own.problem, error.error().message);
  }
  exchange.open();
  exchange.tell("offer", bytes_of(own));

  Acquaintance result;
  std::optional<Error> problem;
  try {
    result = meet(fitting(exchange.hear("offer"), own), handshake, allocation, std::move(signals));
  } catch (const Exception& error) {
    problem = error.error();
  }
  exchange.tell("outcome", problem ? problem->message : "");
  if (problem) throw Exception(*problem);

  const auto outcomes = exchange.hear("outcome");
  const auto bad = std::find_if(outcomes.begin(), outcomes.end(),
                                [](const std::string& outcome) { return !outcome.empty(); });
  if (bad == outcomes.end()) {
    // Barrier: no rank may exit while it still serves the store to another.
    throw_if(result.signals->barrier(result.signals->channels() - 1, deadline));
    return result;
  }
  const auto rank = static_cast<int>(bad - outcomes.begin());
  throw Exception(
      Error{ErrorCode::kAborted, "rank " + std::to_string(rank) + " says: " + *bad, rank});
}

}  // namespace hccl_like

// A group meets its ranks: for the first time, and after a suspension.
#include "collectives/compression/compressed_calls.h"
#include "collectives/engine/runtime.h"
#include "core/base/log.h"
#include "process_group/backend/backend.h"
#include "process_group/backend/own_algorithms.h"
#include "process_group/diagnosis/error_file.h"
#include "process_group/diagnosis/errors.h"

namespace hccl_like {
namespace {

// Throws kMisuse if the group cannot have the compression that it asks for.
Compression compression_of(const Options& options, const Config& config) {
  const Compression compression =
      options.compression.empty() ? config.compression : parse_compression(options.compression);
  if (compression != Compression::kNone && (options.deterministic || config.deterministic))
    throw_misuse("results cannot be both deterministic and compressed, because the rounding of " +
                 std::string(name(compression)) +
                 " depends on the hosts of the ranks; leave out one of the two");
  return compression;
}

// ProcessRecord::device of this rank.
std::string device_kind(Session& session) {
  return session.runtime().config().mixed_devices ? std::string(kAnyDevice)
                                                  : session.devices().accelerator_kind();
}

std::shared_ptr<FailureReport> failure_report(Session& session, const Options& options,
                                              const c10::intrusive_ptr<c10d::Store>& store,
                                              const Communicator& communicator) {
  return std::make_shared<FailureReport>(session.recorder(), session.runtime().config(), store,
                                         FailureReport::Group{.id = communicator.id(),
                                                              .rank = communicator.rank(),
                                                              .size = communicator.size(),
                                                              .timeout = options.timeout});
}

void log_compression(const Communicator& communicator, Compression compression) {
  const Hosts& hosts = communicator.topology().hosts;
  if (compression == Compression::kNone || communicator.size() == 1) return;
  log_info([&] {
    const std::string group = "group " + communicator.name() + ": ";
    const std::string format(name(compression));
    if (hosts.count() == 1) return group + "compression with " + format + " is ignored on one host";
    return group + "all_reduce, reduce_scatter and all_gather of at least " +
           std::to_string(least_compressed(hosts)) + " bytes of float32 go between its " +
           std::to_string(hosts.count()) + " hosts as " + format +
           "; other calls are not compressed";
  });
}

}  // namespace

c10::intrusive_ptr<Backend> Backend::create(const std::shared_ptr<Session>& session,
                                            const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size,
                                            const c10::intrusive_ptr<hccl_like::Options>& options,
                                            Membership* membership) {
  const std::string& name = options->group_name;
  try {
    // Report errors before other ranks wait.
    ForcedAlgorithms::parse(options->algorithms);
    compression_of(*options, session->runtime().config());
    C10dStore bootstrap(store, size, {});
    // All members use the same group name, because torch puts it into the key prefix.
    const auto make = [&](hccl_like::Store& through, const std::string& scope) {
      return session->runtime().create(through, rank, size, name.empty() ? "0" : name,
                                       options->timeout, Deadline::after(options->timeout), scope,
                                       device_kind(*session));
    };
    std::shared_ptr<Communicator> communicator;
    if (membership != nullptr) {
      membership->declare();
      MembershipStore watched(store, size, *membership);
      communicator = make(watched, membership->meeting_place() + name);
    } else {
      communicator = make(bootstrap, name);
    }
    auto backend = c10::make_intrusive<Backend>(session, std::move(communicator), store, options);
    backend->tell_through("create");
    backend->add_own_algorithms();
    return backend;
  } catch (const Exception& exception) {
    throw_torch_setup_error(exception.error(), "hccl-like could not make process group '" + name +
                                                   "' on rank " + std::to_string(rank));
  }
}

Backend::Backend(const std::shared_ptr<Session>& session,
                 std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<c10d::Store> store,
                 c10::intrusive_ptr<hccl_like::Options> options)
    : c10d::Backend(communicator->rank(), communicator->size()),
      store_(std::move(store)),
      options_(std::move(options)),
      diagnosis_(*this, *options_, session->recorder(), session->counters(),
                 hccl_like::failure_report(*session, *options_, store_, *communicator)),
      issuer_(session, communicator, diagnosis_) {
  init();
  open(session, *communicator);
}

void Backend::open(const std::shared_ptr<Session>& session, const Communicator& communicator) {
  id_ = communicator.id();
  store_prefix_ = "hccl-like/" + std::to_string(id_) + "/";
  const auto communicators = issuer_.communicators();
  if (!options_->algorithms.empty())
    communicators->force(ForcedAlgorithms::parse(options_->algorithms));
  if (options_->deterministic) communicators->set_deterministic();
  const Compression compression = compression_of(*options_, session->runtime().config());
  communicators->set_compression(compression);
  log_compression(communicator, compression);
  session->watchdog().add(diagnosis_.failure_report());
  withdraw_error_file();
  session->add(*this, communicator);
}

void Backend::leave_session() {
  diagnosis_.wait_for_hook();
  sequence_before_ = getSequenceNumberForGroup();
  const auto session = issuer_.session();
  if (!session) return;
  session->use();  // a program may suspend before its first call
  session->remove(*this);
  diagnosis_.leave();
  issuer_.leave(std::nullopt);
}

void Backend::rejoin(const std::shared_ptr<Session>& session,
                     const c10::intrusive_ptr<c10d::Store>& store,
                     std::chrono::milliseconds timeout) {
  const std::string scope = "resume/" + std::to_string(id_);
  const auto through = store ? store : store_;
  const std::string& name = options_->group_name;
  try {
    C10dStore meeting(through, size_, "hccl-like/" + scope + "/");
    auto communicator = session->runtime().create(meeting, rank_, size_, name.empty() ? "0" : name,
                                                  options_->timeout, Deadline::after(timeout),
                                                  scope, device_kind(*session));
    session->use();
    store_ = through;
    diagnosis_.reopen(session->counters(),
                      hccl_like::failure_report(*session, *options_, store_, *communicator));
    issuer_.reopen(session, communicator);
    open(session, *communicator);
    tell_through("resume");
    add_own_algorithms();
  } catch (const Exception& exception) {
    throw_torch_setup_error(exception.error(), "hccl-like could not resume process group '" + name +
                                                   "' on rank " + std::to_string(rank_));
  }
}

void Backend::add_own_algorithms() {
  const auto session = issuer_.session();
  const auto communicators = issuer_.communicators();
  if (!session || !communicators) return;
  hccl_like::add_own_algorithms(
      *communicators, options_->algorithms.empty() ? session->runtime().config().algo
                                                   : ForcedAlgorithms::parse(options_->algorithms));
}

}  // namespace hccl_like

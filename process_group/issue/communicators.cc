#include "process_group/issue/communicators.h"

#include <numeric>
#include <vector>

namespace hccl_like {
namespace {

std::shared_ptr<Communicator> twin(Communicator& communicator) {
  std::vector<int> everyone(static_cast<size_t>(communicator.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return communicator.split(everyone, communicator.name());
}

}  // namespace

Communicators::Communicators(std::shared_ptr<Communicator> host)
    : host_(std::move(host)), device_(twin(*host_)) {
  Communicator::tie(host_, device_);
  checks_ = ResultChecks::of(*host_, *device_);
}

const std::shared_ptr<Communicator>& Communicators::of(c10::Device device,
                                                       Collective collective) const {
  const bool apart = !device.is_cpu() && collective != Collective::kBarrier &&
                     host_->device_mix() != DeviceMix::kHost;
  return apart ? device_ : host_;
}

void Communicators::abort(const std::string& reason) const { host_->abort(reason); }

void Communicators::set_timeout(std::chrono::milliseconds timeout) const {
  host_->set_timeout(timeout);
  device_->set_timeout(timeout);
}

void Communicators::set_deterministic() const {
  host_->set_deterministic();
  device_->set_deterministic();
}

void Communicators::set_compression(Compression compression) const {
  host_->set_compression(compression);
  device_->set_compression(compression);
}

void Communicators::force(const ForcedAlgorithms& algorithms) const {
  host_->force(algorithms);
  device_->force(algorithms);
}

void Communicators::add_own(const std::shared_ptr<const Algorithm>& algorithm) const {
  host_->add_own(algorithm);
  device_->add_own(algorithm);
}

std::optional<Error> Communicators::failure() const {
  if (auto error = host_->failure()) return error;
  return device_->failure();
}

uint64_t Communicators::sequence() const {
  return uint64_t{host_->sequence()} + device_->sequence();
}

}  // namespace hccl_like

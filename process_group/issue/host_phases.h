#pragma once
// Large calls between hosts whose ranks' devices reach each other's memory within a host.
#include <array>
#include <memory>
#include <vector>

#include "process_group/issue/staging.h"

namespace hccl_like {

// Serves one group and one device. Makes a call in up to three phases, each a call of a smaller
// group, so that only 1/n of the bytes crosses to the host and to the network, for n ranks on the
// emptiest host:
//                   within each host         between hosts, by each    within each host
//                                            of n ranks of a host
//   all_reduce      reduce_scatter           all_reduce                all_gather
//   reduce          reduce_scatter           reduce                    gather, root's host
//   reduce_scatter  reduce_scatter           reduce_scatter            -
//   all_gather      -                        all_gather                all_gather
//   broadcast       broadcast, root's host   broadcast                 all_gather, other hosts
// The calls within a host are made by streams of the devices (collectives/stream/), or through the
// host where those cannot. Each phase has a Staging of its own, through which all calls pass in the
// order of issue, also those without that phase: the order is the same on all ranks. The first
// phase also compares the whole call between all ranks.
// Paper: Träff and Hunold, Decomposing MPI Collectives for Exploiting Multi-lane Communication,
// CLUSTER 2020.
class HostPhases {
 public:
  // Whether such a call is made in phases. Equal on all ranks whose devices are alike. `most`:
  // bytes of a slice per side. A few nanoseconds for a group of one host.
  static bool may_serve(const DeviceAccess& access, const Communicator& communicator,
                        const Request& request, size_t most);
  // The same for a call of tensors of one type with equal chunks, of `bytes` in all.
  static bool may_serve(const DeviceAccess& access, const Hosts& hosts,
                        const CallPathOptions& options, Collective collective, size_t bytes,
                        size_t most);

  // The devices outlive this object. All ranks make it before the same call. Throws kSystem.
  HostPhases(Devices& devices, const DeviceAccess& access, size_t most,
             std::shared_ptr<Communicator> communicator);
  HostPhases(const HostPhases&) = delete;
  HostPhases& operator=(const HostPhases&) = delete;

  // As Staging::prepare(), of each part of the call in turn: a large call has several, which are in
  // different phases at the same time. first() launches the results, in order. Each ends kPhases
  // calls of slices (Pending::expect_slices).
  static constexpr size_t kPhases = 3;
  std::vector<std::shared_ptr<Staging::Call>> prepare(const Request& request,
                                                      std::chrono::milliseconds timeout,
                                                      const std::shared_ptr<Pending>& pending);
  Staging& first() { return *stagings_.front(); }

 private:
  class Plan;
  std::shared_ptr<Staging::Call> prepare_phase(size_t index, const Request& phase, Collective whole,
                                               std::chrono::milliseconds timeout,
                                               const std::shared_ptr<Communicator>& communicator,
                                               const std::shared_ptr<Pending>& pending);

  const DeviceAccess& access_;
  const size_t most_;
  const std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Communicator> within_;   // the ranks of this host
  std::shared_ptr<Communicator> between_;  // one rank of each host; null if this rank has no part
  std::array<std::unique_ptr<Staging>, kPhases> stagings_;
};

}  // namespace hccl_like

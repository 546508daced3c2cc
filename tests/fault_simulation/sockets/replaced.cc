// Replaces the functions that read the host's properties, for a process of a simulated job. The
// linker takes these instead of those in the layers' archives.
#include <string>

#include "core/machine/idle_cores.h"
#include "tests/fault_simulation/sockets/network.h"
#include "transport/bootstrap/host.h"

namespace hccl_like {

IdleCores::IdleCores(const char*, size_t) : host_(1) {}
size_t IdleCores::usable() const { return 1; }
size_t IdleCores::idle(size_t) const { return 0; }

std::string host_name() {
  return "node" + std::to_string(fault_simulation::the_network->host_of(
                      fault_simulation::the_network->current()));
}
std::string host_id() { return host_name() + "/0/0"; }
std::string_view machine_of(std::string_view host) { return host.substr(0, host.find('/')); }

}  // namespace hccl_like

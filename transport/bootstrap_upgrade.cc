#include "transport/bootstrap_upgrade.h"

namespace hccl_like {

std::unique_ptr<Upgrade> start_shm_upgrade(Fd, Side, size_t, Poller&) { return nullptr; }
bool has_shm() { return false; }

}  // namespace hccl_like

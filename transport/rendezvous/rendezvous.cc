#include "transport/rendezvous/rendezvous.h"

#include "transport/rendezvous/remote_rendezvous.h"
#include "transport/rendezvous/shared_rendezvous.h"

namespace hccl_like {

std::unique_ptr<Rendezvous> make_rendezvous(Wire& wire) {
  if (RemoteMemory* const memory = wire.extensions().remote_memory)
    return std::make_unique<RemoteRendezvous>(*memory);
  return std::make_unique<SharedRendezvous>(wire);
}

}  // namespace hccl_like

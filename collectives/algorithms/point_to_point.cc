#include "collectives/algorithms/all.h"

namespace hccl_like {

// One message, the whole payload: 0: send in[0]->3
Schedule send_to(int peer) {
  Schedule s(/*chunks=*/1);
  s.round(send(peer, in(0)));
  return s;
}

// Its other end: 0: recv out[0]<-2
Schedule recv_from(int peer) {
  Schedule s(/*chunks=*/1);
  s.round(recv(peer, out(0)));
  return s;
}

}  // namespace hccl_like

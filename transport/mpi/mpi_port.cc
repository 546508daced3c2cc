#include "transport/mpi/mpi_port.h"

namespace hccl_like {

MpiPort::MpiPort(MpiWorld& world, Poller& poller, BlockShape shape, int peer, int send_tag,
                 int receive_tag)
    : world_(world),
      poller_(poller),
      shape_(shape),
      peer_(peer),
      send_tag_(send_tag),
      receive_tag_(receive_tag),
      sends_(
          std::make_unique_for_overwrite<Line[]>(shape.slots() * shape.block_bytes / sizeof(Line))),
      receives_(std::make_unique_for_overwrite<Line[]>(shape.slots() * shape.block_bytes /
                                                       sizeof(Line))) {
  poller_.count_nappers(+1);
}

// Cancels pending receives. Memory that MPI still holds (a send to a peer that does not read, a
// cancelled receive being filled) is leaked: no moment is safe to free it.
MpiPort::~MpiPort() {
  poller_.count_nappers(-1);
  const MpiLibrary& mpi = world_.library();
  bool leave = false;
  for (UnderWay& one : receiving_) {
    mpi.cancel(&one.request);
    leave |= !finished(one);
    if (one.request != mpi.request_null) mpi.request_free(&one.request);
  }
  if (leave) (void)receives_.release();
  if (sending_.empty()) return;
  for (UnderWay& one : sending_) mpi.request_free(&one.request);
  (void)sends_.release();
}

bool MpiPort::check(const char* function, int code) {
  if (code != 0 && broken_.empty()) broken_ = world_.library().reason(function, code);
  return code == 0;
}

void MpiPort::send(size_t slot, size_t bytes) {
  const MpiLibrary& mpi = world_.library();
  UnderWay one{slot, mpi.request_null};
  if (check("MPI_Isend", mpi.isend(send_slot(slot).data(), static_cast<int>(bytes), mpi.byte, peer_,
                                   send_tag_, world_.comm(), &one.request)))
    sending_.push_back(one);
}

void MpiPort::receive(size_t slot) {
  const MpiLibrary& mpi = world_.library();
  UnderWay one{slot, mpi.request_null};
  if (check("MPI_Irecv", mpi.irecv(receive_slot(slot).data(), static_cast<int>(shape_.block_bytes),
                                   mpi.byte, peer_, receive_tag_, world_.comm(), &one.request)))
    receiving_.push_back(one);
}

bool MpiPort::finished(UnderWay& one) {
  int done = 0;
  return check("MPI_Test",
               world_.library().test(&one.request, &done, world_.library().status_ignore)) &&
         done != 0;
}

void MpiPort::progress(BlockSink& sink) {
  while (!sending_.empty() && finished(sending_.front())) {
    sink.sent(sending_.front().slot);
    sending_.pop_front();
  }
  while (!receiving_.empty() && finished(receiving_.front())) {
    const size_t slot = receiving_.front().slot;
    receiving_.pop_front();
    sink.arrived(slot);
  }
}

}  // namespace hccl_like

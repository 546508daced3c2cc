#pragma once
// The listening sockets of a process, as one descriptor to poll.
#include <list>
#include <mutex>

#include "core/base/fd.h"
#include "transport/bootstrap/listener.h"

namespace hccl_like {

// All listeners are open while a group is made, since its hosts are not known yet. If all ranks are
// on one host, the externally reachable listeners refuse connections until the next rendezvous.
class Listeners {
 public:
  // Throws kSystem.
  Listeners();

  // Adds an open listener. Must precede all other calls.
  Listener& add(Listener listener);
  // Readable while a connection waits. Constant; any thread may poll it.
  int fd() const { return epoll_.get(); }
  std::list<Listener>& listeners() { return listeners_; }

  // Lasts from before the ranks learn this process's addresses until this process knows the ranks.
  // Any thread; several meetings may overlap.
  class Rendezvous {
   public:
    explicit Rendezvous(Listeners& listeners);
    ~Rendezvous();
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;
    // The group has ranks of other hosts: the listeners stay open.
    void others_come();

   private:
    Listeners& listeners_;
  };

 private:
  void open_outside();
  void shut_outside();

  Fd epoll_;
  std::list<Listener> listeners_;
  std::mutex mutex_;  // guards the rest
  int meetings_ = 0;
  bool needed_ = false;
  bool shut_ = false;
};

}  // namespace hccl_like

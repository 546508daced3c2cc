#pragma once
// Where peers knock: the listening sockets of a process, as one descriptor to watch.
#include <list>
#include <mutex>

#include "core/base/fd.h"
#include "transport/bootstrap/listener.h"

namespace hccl_like {

// While a group is made nobody knows on how many hosts its ranks are, so all listeners are open. If
// they turn out to be on one host, those that others can reach are shut until the next meeting.
class Listeners {
 public:
  // Throws kSystem.
  Listeners();

  // Open from now on. Before anything else is called.
  Listener& add(Listener listener);
  // Readable while somebody knocks. The same one all the time; any thread may poll it.
  int fd() const { return epoll_.get(); }
  std::list<Listener>& listeners() { return listeners_; }

  // A meeting of ranks, from before they are told the addresses of this process until it knows who
  // they are. Any thread; there may be several at the same time.
  class Meeting {
   public:
    explicit Meeting(Listeners& listeners);
    ~Meeting();
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;
    // Ranks of other hosts are among them: the listeners stay open.
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

// The smallest transport that does everything: one UNIX socket for each peer on this host.
//
// An end listens on a socket whose name the kernel picks, and publishes that name. A connector
// connects there and says who it is; an acceptor waits until the peer that it was told about has
// come. From then on both speak through the socket.
//
// The receiver of a long message reads the sender's memory with process_vm_readv, where the system
// allows that. The notes about such reads go through a second pair of sockets, one end of which the
// connector hands over with its first bytes.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "transport/module.h"

// The interface's structures, as this module fills them.
struct hct_end {
  const hct_host* host = nullptr;
  std::string self_id;
  int listener = -1;
  sockaddr_un address{};
  socklen_t length = sizeof(sockaddr_un);
  // Peers that have come: who they say they are (32 bytes, as they arrive), until somebody asks for
  // them.
  struct Guest {
    int fd;
    int notes;
    std::string id;
  };
  std::list<Guest> guests;
};

struct hct_wire {
  hct_end* end = nullptr;
  std::string peer_id;
  std::string route;
  int fd = -1;  // an acceptor's: none until the peer has come
  int notes = -1;
  bool readable = true;
  std::vector<char> buffer = std::vector<char>(256 * 1024);
  size_t head = 0, tail = 0;  // bytes [head, tail) have arrived and were not taken yet
  size_t want = 1;            // of the last peek
  std::string ended;          // why nothing more will arrive; empty while it may
};

namespace {

constexpr size_t kIdBytes = 32;

thread_local std::string last_error_text;

int fail(const std::string& what) {
  last_error_text = what + ": " + std::strerror(errno);
  return -1;
}

const char* last_error() { return last_error_text.c_str(); }

// -------------------------------------------------------------------------------------------- ends

void on_guest(void*, uint32_t) {}  // only to wake up: wires look for themselves

int open_end(const hct_host* host, const char* self_id, hct_end** result) {
  auto end = std::make_unique<hct_end>();
  end->host = host;
  end->self_id = self_id;
  end->listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (end->listener < 0) return fail("cannot make a socket");
  end->address.sun_family = AF_UNIX;  // with no name: the kernel gives one that nobody has
  auto* const address = reinterpret_cast<sockaddr*>(&end->address);
  if (::bind(end->listener, address, sizeof(sa_family_t)) != 0 ||
      ::listen(end->listener, 128) != 0 ||
      ::getsockname(end->listener, address, &end->length) != 0 ||
      host->watch(host->context, end->listener, EPOLLIN, on_guest, end.get()) != 0) {
    ::close(end->listener);
    return fail("cannot listen");
  }
  // Some systems let only parents read, and ask for this. A refusal is harmless.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  *result = end.release();
  return 0;
}

void close_end(hct_end* end) {
  end->host->forget(end->host->context, end->listener);
  ::close(end->listener);
  for (const auto& guest : end->guests) {
    ::close(guest.fd);
    if (guest.notes >= 0) ::close(guest.notes);
  }
  delete end;
}

hct_region address_of(hct_end* end) { return {&end->address, end->length}; }

int can_reach(hct_end*, const hct_peer* peer) {
  return peer->same_host != 0 && peer->address_bytes <= sizeof(sockaddr_un);
}

// The first bytes of a connection, with the peer's end of the socket for notes.
bool introduce(int fd, const std::string& id, int notes) {
  iovec text{const_cast<char*>(id.data()), kIdBytes};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  cmsghdr* const control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &notes, sizeof notes);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL) == kIdBytes;
}

// False once the peer is gone.
bool hear_introduction(hct_end::Guest* guest) {
  char id[kIdBytes];
  iovec text{id, kIdBytes - guest->id.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  if (text.iov_len == 0) return true;
  const ssize_t got = ::recvmsg(guest->fd, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  guest->id.append(id, static_cast<size_t>(got));
  const cmsghdr* const control = CMSG_FIRSTHDR(&message);
  if (control != nullptr && control->cmsg_type == SCM_RIGHTS && guest->notes < 0)
    std::memcpy(&guest->notes, CMSG_DATA(control), sizeof(int));
  return true;
}

// Accepts connections and reads who the peers are.
void let_in(hct_end* end) {
  for (;;) {
    const int fd = ::accept4(end->listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) break;
    end->guests.push_back({fd, -1, ""});
  }
  for (auto guest = end->guests.begin(); guest != end->guests.end();) {
    const bool gone = !hear_introduction(&*guest);
    if (gone) ::close(guest->fd);
    if (gone && guest->notes >= 0) ::close(guest->notes);
    guest = gone ? end->guests.erase(guest) : std::next(guest);
  }
}

// ------------------------------------------------------------------------------------------- wires

void on_ready(void* wire, uint32_t) { static_cast<hct_wire*>(wire)->readable = true; }

bool watch(hct_wire* wire, uint32_t events) {
  const hct_host* const host = wire->end->host;
  return host->watch(host->context, wire->fd, events, on_ready, wire) == 0;
}

bool watch_all(hct_wire* wire) {
  const hct_host* const host = wire->end->host;
  return watch(wire, EPOLLIN) &&
         host->watch(host->context, wire->notes, EPOLLIN, on_guest, wire) == 0;
}

// A socket that has ended stays readable for ever, and would keep the process from sleeping.
void end_wire(hct_wire* wire, const std::string& why) {
  if (!wire->ended.empty()) return;
  wire->ended = why;
  for (const int fd : {wire->fd, wire->notes})
    if (fd >= 0) wire->end->host->forget(wire->end->host->context, fd);
}

// Whether the wire has a socket: an acceptor's gets it when its peer has come.
bool connected(hct_wire* wire) {
  if (wire->fd >= 0) return true;
  let_in(wire->end);
  auto& guests = wire->end->guests;
  const auto peer = std::find_if(guests.begin(), guests.end(),
                                 [&](const auto& guest) { return guest.id == wire->peer_id; });
  if (peer == guests.end()) return false;
  wire->fd = peer->fd;
  wire->notes = peer->notes;
  guests.erase(peer);
  if (wire->notes < 0 || !watch_all(wire)) end_wire(wire, "cannot watch the sockets");
  return true;
}

int connect_wire(hct_end* end, const hct_peer* peer, int side, hct_wire** result) {
  auto wire = std::make_unique<hct_wire>();
  wire->end = end;
  wire->peer_id = peer->id;
  wire->route = std::string("to ") + peer->hostname;
  if (side == HCT_CONNECTOR) {
    sockaddr_un address{};
    std::memcpy(&address, peer->address, peer->address_bytes);
    wire->fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (wire->fd < 0) return fail("cannot make a socket");
    int notes[2] = {-1, -1};
    ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, notes);
    wire->notes = notes[0];
    // On a UNIX socket both succeed at once or not at all.
    const bool done = notes[0] >= 0 &&
                      ::connect(wire->fd, reinterpret_cast<sockaddr*>(&address),
                                static_cast<socklen_t>(peer->address_bytes)) == 0 &&
                      introduce(wire->fd, end->self_id, notes[1]) && watch_all(wire.get());
    const int status = done ? 0 : fail("cannot connect");
    if (notes[1] >= 0) ::close(notes[1]);
    if (!done) {
      ::close(wire->fd);
      if (notes[0] >= 0) ::close(notes[0]);
      return status;
    }
  }
  *result = wire.release();
  return 0;
}

void close_wire(hct_wire* wire) {
  for (const int fd : {wire->fd, wire->notes}) {
    if (fd < 0) continue;
    if (wire->ended.empty()) wire->end->host->forget(wire->end->host->context, fd);
    ::close(fd);  // what was sent stays readable at the other end
  }
  delete wire;
}

size_t write_wire(hct_wire* wire, const hct_region* regions, size_t count) {
  if (!wire->ended.empty() || !connected(wire)) return 0;
  size_t written = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto* const from = static_cast<const char*>(regions[i].data);
    size_t done = 0;
    while (done < regions[i].bytes) {
      const ssize_t sent =
          ::send(wire->fd, from + done, regions[i].bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        done += static_cast<size_t>(sent);
        continue;
      }
      // Anything but a full socket: the peer is gone, and reading will tell after the last byte.
      wire->readable |= errno != EAGAIN;
      return written + done;
    }
    written += done;
  }
  return written;
}

void receive(hct_wire* wire) {
  if (wire->head > 0) {
    std::memmove(wire->buffer.data(), wire->buffer.data() + wire->head, wire->tail - wire->head);
    wire->tail -= wire->head;
    wire->head = 0;
  }
  const size_t space = wire->buffer.size() - wire->tail;
  if (space == 0) return;
  const ssize_t got = ::recv(wire->fd, wire->buffer.data() + wire->tail, space, MSG_DONTWAIT);
  if (got > 0)
    wire->tail += static_cast<size_t>(got);
  else if (got == 0)
    end_wire(wire, "the peer closed the socket");
  else if (errno != EAGAIN && errno != EINTR)
    end_wire(wire, std::strerror(errno));
  wire->readable = got > 0 && static_cast<size_t>(got) == space;
}

hct_region peek_wire(hct_wire* wire, size_t want) {
  wire->want = want;
  if (wire->tail - wire->head < want && wire->ended.empty() && connected(wire) && wire->readable)
    receive(wire);
  return {wire->buffer.data() + wire->head, wire->tail - wire->head};
}

void release_wire(hct_wire* wire, size_t bytes) { wire->head += bytes; }

size_t read_wire(hct_wire* wire, void* into, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const hct_region view = peek_wire(wire, 1);
    if (view.bytes == 0) break;
    const size_t part = std::min(view.bytes, bytes - done);
    std::memcpy(static_cast<char*>(into) + done, view.data, part);
    release_wire(wire, part);
    done += part;
  }
  return done;
}

const char* failure_of(hct_wire* wire) {
  const bool over = !wire->ended.empty() && wire->tail - wire->head < wire->want;
  return over ? wire->ended.c_str() : nullptr;
}

// The kernel has it all, and keeps it for the peer also when this process ends.
int flush_wire(hct_wire*) { return 1; }

int prepare_sleep(hct_wire* wire, int for_space) {
  if (!wire->ended.empty()) return 1;
  if (!connected(wire)) return 1;  // the listener wakes us
  if (wire->tail - wire->head >= wire->want) return 0;
  pollfd now{wire->fd, static_cast<short>(POLLIN | (for_space ? POLLOUT : 0)), 0};
  if (::poll(&now, 1, 0) > 0) {
    wire->readable |= (now.revents & ~POLLOUT) != 0;
    return 0;
  }
  return watch(wire, EPOLLIN | (for_space ? static_cast<uint32_t>(EPOLLOUT) : 0u)) ? 1 : 0;
}

// A socket that nobody reads tells by itself that its peer has sent its last byte.
int prepare_sleep_unread(hct_wire* wire, int for_space) {
  if (!wire->ended.empty()) return 0;
  if (!connected(wire)) return 1;
  const uint32_t events = EPOLLRDHUP | (for_space ? static_cast<uint32_t>(EPOLLOUT) : 0u);
  pollfd now{wire->fd, static_cast<short>(events), 0};
  if (::poll(&now, 1, 0) > 0) {
    wire->readable |= (now.revents & ~POLLOUT) != 0;
    return 0;
  }
  return watch(wire, events) ? 1 : 0;
}

void end_sleep(hct_wire* wire) {
  if (wire->fd >= 0 && wire->ended.empty()) watch(wire, EPOLLIN);
}

const char* route_of(hct_wire* wire) { return wire->route.c_str(); }

// ------------------------------------------------------------- reads of the peer's memory

// A place is an address and a length in the peer's memory. Nothing needs to be registered.
int show(hct_wire*, uint32_t, const void* data, size_t bytes, hct_place* place) {
  place->words[0] = reinterpret_cast<uintptr_t>(data);
  place->words[1] = bytes;
  return 0;
}

void hide(hct_wire*, uint32_t) {}

// Done when it returns.
int start_read(hct_wire* wire, uint32_t, const hct_place* place, size_t offset, void* into,
               size_t bytes) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (!wire->ended.empty() || offset + bytes > place->words[1] ||
      ::getsockopt(wire->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return -1;
  for (size_t done = 0; done < bytes;) {
    iovec local{static_cast<char*>(into) + done, bytes - done};
    iovec remote{reinterpret_cast<void*>(place->words[0] + offset + done), bytes - done};
    const ssize_t got = ::process_vm_readv(peer.pid, &local, 1, &remote, 1, 0);
    if (got <= 0) return -1;
    done += static_cast<size_t>(got);
  }
  return 0;
}

int read_state(hct_wire*, uint32_t) { return HCT_READ_DONE; }

void progress_reads(hct_wire*) {}

void tell(hct_wire* wire, uint64_t note) {
  if (wire->notes >= 0) (void)!::send(wire->notes, &note, sizeof note, MSG_NOSIGNAL);
}

int hear(hct_wire* wire, uint64_t* note) {
  uint64_t got;
  if (!connected(wire)) return 0;
  const int how = note == nullptr ? MSG_PEEK : 0;
  if (::recv(wire->notes, &got, sizeof got, how) != sizeof got) return 0;
  if (note != nullptr) *note = got;
  return 1;
}

void abandon_reads(hct_wire* wire, const char* why) { end_wire(wire, why); }

constexpr hct_api kApi{
    .size = sizeof(hct_api),
    .name = "unix",
    .last_error = last_error,
    .open = open_end,
    .close = close_end,
    .address = address_of,
    .can_reach = can_reach,
    .connect = connect_wire,
    .close_wire = close_wire,
    .write = write_wire,
    .peek = peek_wire,
    .release = release_wire,
    .read = read_wire,
    .failure = failure_of,
    .flush = flush_wire,
    .prepare_sleep = prepare_sleep,
    .end_sleep = end_sleep,
    .route = route_of,
    .prepare_sleep_unread = prepare_sleep_unread,
    .show = show,
    .hide = hide,
    .start_read = start_read,
    .read_state = read_state,
    .progress_reads = progress_reads,
    .tell = tell,
    .hear = hear,
    .abandon_reads = abandon_reads,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const hct_api* hct_get_api(int major, int) {
  return major == HCT_MAJOR ? &kApi : nullptr;
}

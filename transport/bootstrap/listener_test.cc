#include "transport/bootstrap/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/base/error.h"
#include "core/base/log.h"
#include "transport/bootstrap/connector.h"
#include "transport/network/address.h"

namespace hccl_like {
namespace {

Fd connect_to(const char* address, uint16_t port) {
  sockaddr_storage storage;
  const auto parsed = Address::parse(address).value();
  const socklen_t length = parsed.with_port(port, storage);
  Fd socket(::socket(parsed.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0)
    socket.reset();
  return socket;
}

const Address kThisHost = *Address::parse("127.0.0.1");

TEST(Listener, TakesIpv4AndIpv6OnOnePort) {
  const std::vector<Address> both{kThisHost, *Address::parse("::1")};
  std::vector<Listener> listeners = Listener::tcp(both, {});
  ASSERT_EQ(listeners.size(), 2u);
  ASSERT_NE(listeners[0].port(), 0);
  ASSERT_EQ(listeners[0].port(), listeners[1].port());
  for (size_t i = 0; i < both.size(); ++i) {
    const std::string address = both[i].to_string();
    const Fd client = connect_to(address.c_str(), listeners[0].port());
    ASSERT_TRUE(client.valid()) << address;
    const Arrival arrival = listeners[i].accept();
    ASSERT_TRUE(arrival.socket.valid()) << address;
    EXPECT_NE(arrival.from.find(address), std::string::npos) << arrival.from;
    EXPECT_FALSE(listeners[i].accept().socket.valid());
  }
}

// All of 127.0.0.0/8 is this host's.
TEST(Listener, ListensAtTheGivenAddressesAndAtNoOther) {
  const Listener one = Listener::tcp(kThisHost, {});
  EXPECT_TRUE(connect_to("127.0.0.1", one.port()).valid());
  for (const char* other : {"127.0.0.2", "::1"}) {
    EXPECT_FALSE(connect_to(other, one.port()).valid()) << other;
    EXPECT_EQ(errno, ECONNREFUSED) << other;
  }
}

TEST(Listener, TakesAnotherPortWhereOneOfTheAddressesHasItTaken) {
  const Listener other = Listener::tcp(*Address::parse("127.0.0.2"), {});
  const std::vector<Address> both{kThisHost, *Address::parse("127.0.0.2")};
  const PortRange two{other.port(), static_cast<uint16_t>(other.port() + 1)};
  if (two.high < two.low) GTEST_SKIP() << "at the end of the ports";
  try {
    EXPECT_EQ(Listener::tcp(both, two)[0].port(), two.high);
  } catch (const Exception& exception) {  // somebody has that one, too
    EXPECT_NE(std::string(exception.what()).find(two.to_string()), std::string::npos);
  }
}

TEST(Listener, RefusesForAWhileAndKeepsItsPlace) {
  const std::vector<Address> both{kThisHost, *Address::parse("127.0.0.2")};
  std::vector<Listener> listeners = Listener::tcp(both, {});
  const uint16_t port = listeners[1].port();
  listeners[1].refuse();
  EXPECT_FALSE(connect_to("127.0.0.2", port).valid());
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_TRUE(connect_to("127.0.0.1", port).valid()) << "the other one goes on";
  EXPECT_THROW(Listener::tcp(both[1], {port, port}), Exception) << "nobody gets the place";
  listeners[1].listen();
  EXPECT_TRUE(connect_to("127.0.0.2", port).valid());
}

TEST(Listener, TakesTheNextPortOfTheRangeAndNamesItWhenAllAreTaken) {
  // Three free ports in a row, as far as anybody can tell.
  const uint16_t low = Listener::tcp(kThisHost, {}).port();
  const PortRange range{low, static_cast<uint16_t>(low + 2)};
  if (range.high < low) GTEST_SKIP() << "at the end of the ports";
  std::vector<Listener> listeners;
  std::string text;
  for (int i = 0; i < 4 && text.empty(); ++i) {
    try {
      listeners.push_back(Listener::tcp(kThisHost, range));
    } catch (const Exception& exception) {
      text = exception.what();
    }
  }
  EXPECT_LE(listeners.size(), 3u);
  EXPECT_NE(text.find("HCCL_LIKE_PORT_RANGE=" + range.to_string()), std::string::npos) << text;
  for (size_t i = 0; i < listeners.size(); ++i) {
    EXPECT_GE(listeners[i].port(), range.low);
    EXPECT_LE(listeners[i].port(), range.high);
    for (size_t k = 0; k < i; ++k) EXPECT_NE(listeners[i].port(), listeners[k].port());
  }
}

TEST(Listener, AFixedPortCanBeTakenAgainAtOnce) {
  const uint16_t port = Listener::tcp(kThisHost, {}).port();
  {
    Listener first = Listener::tcp(kThisHost, {port, port});
    const Fd client = connect_to("127.0.0.1", port);
    // The listening side closes first, so its end goes to TIME_WAIT.
    first.accept().socket.reset();
  }
  EXPECT_EQ(Listener::tcp(kThisHost, {port, port}).port(), port);
}

TEST(Listener, NeverSharesAPort) {
  const Listener first = Listener::tcp(kThisHost, {});
  EXPECT_THROW(Listener::tcp(kThisHost, {first.port(), first.port()}), Exception);
}

TEST(Listener, UnixNamesAreRandomAndReachable) {
  Listener one = Listener::unix_abstract();
  const Listener other = Listener::unix_abstract();
  EXPECT_NE(one.name(), other.name());
  const Way way = way_to_unix(one.name());
  const Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&way.address), way.length),
            0);
  EXPECT_TRUE(one.accept().socket.valid());
}

TEST(Listener, DropsAConnectionRatherThanKeepItWaitingWithoutDescriptors) {
  // The undefined behaviour sanitizer needs a descriptor when it meets a type for the first time:
  // let it meet the log's.
  log_warn("descriptors are about to run out, on purpose");
  Listener listener = Listener::tcp(kThisHost, {});
  const Fd client = connect_to("127.0.0.1", listener.port());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(client.get()) + 1;
  std::vector<Fd> hogs;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (;;) {
    Fd hog(::dup(client.get()));
    if (!hog.valid()) break;
    hogs.push_back(std::move(hog));
  }
  const Arrival arrival = listener.accept();
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(arrival.socket.valid());
  char byte;
  EXPECT_LE(::recv(client.get(), &byte, 1, 0), 0) << "the connection was closed";
  hogs.clear();
  const Fd again = connect_to("127.0.0.1", listener.port());
  EXPECT_TRUE(listener.accept().socket.valid()) << "and the next one is welcome";
}

}  // namespace
}  // namespace hccl_like

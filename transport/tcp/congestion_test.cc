#include "transport/tcp/congestion.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace hccl_like {
namespace {

Fd new_socket() { return Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

std::string name_of(const Fd& socket) {
  std::array<char, 16> name{};
  socklen_t length = name.size();
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length), 0);
  return name.data();
}

std::string prepared(const std::string& setting) {
  const Fd socket = new_socket();
  Congestion(setting).prepare(socket.get());
  return name_of(socket);
}

TEST(Congestion, LeavesTheSystemsAloneIfAsked) {
  EXPECT_EQ(prepared("system"), name_of(new_socket()));
  const Fd socket = new_socket();
  Congestion().prepare(socket.get());
  EXPECT_EQ(name_of(socket), name_of(new_socket()));
}

TEST(Congestion, TakesTheOneThatIsNamed) { EXPECT_EQ(prepared("reno"), "reno"); }

TEST(Congestion, ReplacesByItselfOnlyWhatIsMadeForWideAreas) {
  const std::string system = name_of(new_socket());
  const bool wide = system == "cubic" || system.starts_with("bbr");
  EXPECT_EQ(prepared("auto"), wide ? "reno" : system);
}

TEST(Congestion, StaysOnANearConnection) {
  const Congestion congestion("auto");
  const Fd listener = new_socket();
  congestion.prepare(listener.get());
  sockaddr_in address{};
  socklen_t length = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), raw, length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ::getsockname(listener.get(), raw, &length);
  const Fd one = new_socket();
  congestion.prepare(one.get());
  ASSERT_EQ(::connect(one.get(), raw, length), 0);
  const Fd other(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (const Fd* end : {&one, &other}) {
    congestion.settle(end->get());
    EXPECT_EQ(name_of(*end), prepared("auto"));
  }
}

TEST(Congestion, RefusesANameThatTheKernelDoesNotKnow) {
  try {
    Congestion("carrier-pigeon");
    FAIL();
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.code(), ErrorCode::kMisuse);
    EXPECT_NE(std::string(exception.what()).find("HCCL_LIKE_TCP_CONGESTION=carrier-pigeon"),
              std::string::npos);
    EXPECT_NE(std::string(exception.what()).find("reno"), std::string::npos);
  }
}

}  // namespace
}  // namespace hccl_like

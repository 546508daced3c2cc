#include "transport/metrics/metrics_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "transport/link/traffic.h"
#include "transport/metrics/metrics_text.h"

namespace hccl_like {
namespace {

using std::chrono::nanoseconds;

constexpr std::string_view kTestKinds[] = {"all_reduce", "send"};

std::shared_ptr<CounterFile> some_counters(std::shared_ptr<GroupCounters>& group) {
  auto file = CounterFile::make(kTestKinds);
  file->set_job(uint64_t{0x2a} << 32, 1, 4);
  group = file->add({.id = 7, .rank = 0, .size = 2, .global_rank = 3, .name = "a\"b\\c\nd"});
  const GroupCounters::Call call[] = {{0, 8}};
  group->made_collective(5, 0);
  group->over(call, nanoseconds(1'500'000'000));
  group->launched();
  return file;
}

// A port that was free a moment ago.
uint16_t free_port() { return Listener::tcp(*Address::parse("127.0.0.1"), PortRange{}).port(); }

Fd connect_to(uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage name;
  const socklen_t length = Address::parse("127.0.0.1")->with_port(port, name);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), length), 0);
  return fd;
}

std::string answer_to(uint16_t port, std::string_view request) {
  const Fd fd = connect_to(port);
  EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string all;
  std::array<char, 4096> piece;
  for (ssize_t bytes; (bytes = ::recv(fd.get(), piece.data(), piece.size(), 0)) > 0;)
    all.append(piece.data(), static_cast<size_t>(bytes));
  return all;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(MetricsText, HasEachCounterWithItsLabels) {
  std::shared_ptr<GroupCounters> group;
  const auto file = some_counters(group);
  const uint64_t began = file->contents().groups[0].progress_ns;
  const std::string text = metrics_text(file->contents(), began + 2'000'000'000);
  const std::string labels = R"({rank="3",group="a\"b\\c\nd",group_size="2")";
  EXPECT_TRUE(has(text, R"(hccl_like_info{rank="1",world_size="4",job_id="j0000002a"} 1)"));
  EXPECT_TRUE(has(text, "hccl_like_calls_total" + labels + ",collective=\"all_reduce\"} 1\n"));
  EXPECT_TRUE(has(text, "hccl_like_bytes_total" + labels + ",collective=\"all_reduce\"} 8\n"));
  EXPECT_TRUE(
      has(text, "hccl_like_seconds_total" + labels + ",collective=\"all_reduce\"} 1.500000000\n"));
  EXPECT_TRUE(has(text, "hccl_like_in_flight" + labels + "} 1\n"));
  EXPECT_TRUE(has(text, "hccl_like_in_flight_seconds" + labels + "} 2.000000000\n"));
  EXPECT_TRUE(has(text, "hccl_like_collectives_made_total" + labels + "} 5\n"));
  EXPECT_FALSE(has(text, "collective=\"send\""));
  EXPECT_FALSE(has(text, "peer=")) << "there is no connection yet";
}

TEST(MetricsText, HasTheMessagesToEachPeerOnceItIsConnected) {
  const auto file = CounterFile::make(kTestKinds);
  file->set_job(1, 0, 4);
  Traffic traffic;
  traffic.sent(100);  // nothing counts before there is a place for it
  traffic.count_in(*file->add_peer(2));
  traffic.connected("fabric");
  traffic.sent(30);
  traffic.received(5);
  traffic.received(6);
  traffic.waited(std::chrono::milliseconds(250));
  traffic.waited(std::chrono::milliseconds(-1));
  traffic.rails(2, 1);
  traffic.rails(1, 0);
  file->add_peer(3)->waited = 7;  // which has no connection
  const std::string text = metrics_text(file->contents(), 0);
  const std::string labels = R"({rank="0",peer="2",transport="fabric"} )";
  EXPECT_TRUE(has(text, "hccl_like_messages_sent_total" + labels + "1\n"));
  EXPECT_TRUE(has(text, "hccl_like_sent_bytes_total" + labels + "30\n"));
  EXPECT_TRUE(has(text, "hccl_like_messages_received_total" + labels + "2\n"));
  EXPECT_TRUE(has(text, "hccl_like_received_bytes_total" + labels + "11\n"));
  EXPECT_TRUE(has(text, "hccl_like_waited_seconds_total" + labels + "0.250000000\n"));
  EXPECT_TRUE(has(text, "hccl_like_reconnections_total" + labels + "3\n"));
  EXPECT_TRUE(has(text, "hccl_like_rails_down" + labels + "0\n"));
  EXPECT_TRUE(has(text, R"(waited_seconds_total{rank="0",peer="3",transport=""} 0.000000007)"));
}

TEST(MetricsServer, AnswersGetOfMetricsAndNothingElse) {
  std::shared_ptr<GroupCounters> group;
  const auto file = some_counters(group);
  const uint16_t port = free_port();
  const MetricsServer server({.address = "127.0.0.1", .port = port}, 0, file);
  EXPECT_EQ(server.where(), "127.0.0.1:" + std::to_string(port));
  const std::string answer = answer_to(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
  EXPECT_TRUE(has(answer, "hccl_like_calls_total"));
  EXPECT_TRUE(has(answer_to(port, "GET / HTTP/1.1\r\n\r\n"), "404 Not Found"));
  EXPECT_TRUE(has(answer_to(port, "POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed"));
  EXPECT_EQ(answer_to(port, std::string(20'000, 'x')), "");
}

TEST(MetricsServer, EndsWhileAClientIsSilent) {
  std::shared_ptr<GroupCounters> group;
  const uint16_t port = free_port();
  auto server = std::make_unique<MetricsServer>(MetricsTarget{.address = "127.0.0.1", .port = port},
                                                0, some_counters(group));
  const Fd silent = connect_to(port);
  const auto began = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

TEST(MetricsServer, AddsTheLocalRankToThePortAndSaysIfThatIsTaken) {
  std::shared_ptr<GroupCounters> group;
  const auto file = some_counters(group);
  const Listener taken = Listener::tcp(*Address::parse("127.0.0.1"), PortRange{});
  const auto before = static_cast<uint16_t>(taken.port() - 1);
  try {
    const MetricsServer server({.address = "127.0.0.1", .port = before}, 1, file);
    FAIL() << "the port is taken";
  } catch (const Exception& error) {
    EXPECT_TRUE(has(error.what(), "127.0.0.1:" + std::to_string(taken.port())));
    EXPECT_TRUE(has(error.what(), "LOCAL_RANK"));
  }
}

TEST(MetricsServer, WritesAFileForEachLocalRankAndRemovesItAtTheEnd) {
  std::shared_ptr<GroupCounters> group;
  const auto file = some_counters(group);
  const std::string folder = ::testing::TempDir() + "hccl_like_metrics";
  std::filesystem::create_directories(folder);
  {
    const MetricsServer server({.file = folder + "/job.prom"}, 2, file);
    EXPECT_EQ(server.where(), folder + "/job.2.prom");
    std::stringstream content;
    content << std::ifstream(server.where()).rdbuf();
    EXPECT_TRUE(has(content.str(), "hccl_like_calls_total"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_THROW(MetricsServer({.file = folder + "/none/job.prom"}, 0, file), Exception);
}

}  // namespace
}  // namespace hccl_like

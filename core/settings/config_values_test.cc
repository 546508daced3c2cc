#include "core/settings/config_values.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.h"

namespace hccl_like {
namespace {

std::string complaint(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMisuse);
    return e.what();
  }
  return "no complaint";
}

TEST(InterfaceFilter, MatchesByPrefix) {
  const InterfaceFilter filter = InterfaceFilter::parse("eth,ib");
  EXPECT_TRUE(filter.matches("eth0"));
  EXPECT_TRUE(filter.matches("ib1"));
  EXPECT_FALSE(filter.matches("lo"));
  EXPECT_TRUE(InterfaceFilter::parse("").matches("anything"));
}

TEST(InterfaceFilter, EqualsSignMeansExactly) {
  const InterfaceFilter filter = InterfaceFilter::parse("=eth1");
  EXPECT_TRUE(filter.matches("eth1"));
  EXPECT_FALSE(filter.matches("eth10"));
}

TEST(InterfaceFilter, CaretExcludes) {
  EXPECT_FALSE(InterfaceFilter::parse("^docker,lo").matches("docker0"));
  EXPECT_TRUE(InterfaceFilter::parse("^docker,lo").matches("eth0"));
  EXPECT_FALSE(InterfaceFilter::parse("^=lo").matches("lo"));
  EXPECT_TRUE(InterfaceFilter::parse("^=lo").matches("lo1"));
}

TEST(InterfaceFilter, PrintsWhatItParsed) {
  for (const char* text : {"", "eth,ib", "=eth1", "^docker,lo", "^=lo"}) {
    EXPECT_EQ(InterfaceFilter::parse(text).to_string(), text);
  }
  EXPECT_EQ(complaint([] { InterfaceFilter::parse("^="); }),
            "'^=' is not a list of interfaces; write names after ^ or =, e.g. ^docker,lo");
}

TEST(RailCount, IsFromOneToSixteen) {
  EXPECT_EQ(RailCount::parse("1").count, 1u);
  EXPECT_EQ(RailCount::parse("16").to_string(), "16");
  for (const char* wrong : {"", "0", "17", "-1", "two", "2 "})
    EXPECT_THROW(RailCount::parse(wrong), Exception) << wrong;
}

TEST(CallShare, IsOneOfSoManyCalls) {
  EXPECT_EQ(CallShare::parse("0").every, 0u);
  EXPECT_EQ(CallShare::parse("1").every, 1u);
  EXPECT_EQ(CallShare::parse("1/1").to_string(), "1");
  EXPECT_EQ(CallShare::parse("1/1000").every, 1000u);
  EXPECT_EQ(CallShare::parse("1/1000").to_string(), "1/1000");
  for (const char* wrong : {"", "2", "1000", "1/0", "2/3", "1/", "-1", "1/4294967296", "0.1"})
    EXPECT_THROW(CallShare::parse(wrong), Exception) << wrong;
}

TEST(PortRange, ReadsBothEnds) {
  EXPECT_EQ(PortRange::parse("20000-20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(PortRange::parse("65535-65535"), (PortRange{65535, 65535}));
  EXPECT_TRUE(PortRange::parse("0-0").any());
  EXPECT_TRUE(PortRange::parse("").any());
  EXPECT_EQ(PortRange::parse("1-2").to_string(), "1-2");
}

TEST(PortRange, RefusesWhatIsNoRange) {
  for (const char* text : {"20000", "2-1", "1-65536", "0-5", "a-b", "1-2-3", "-", " 1-2"}) {
    EXPECT_EQ(complaint([&] { PortRange::parse(text); }),
              "'" + std::string(text) +
                  "' is not a range of ports; write the first and the last, e.g. 20000-20100");
  }
}

TEST(ForcedAlgorithms, FindsByCollective) {
  const ForcedAlgorithms forced = ForcedAlgorithms::parse("all_reduce:ring;allgather:bruck");
  EXPECT_EQ(forced.find("all_reduce"), "ring");
  EXPECT_EQ(forced.find("all_gather"), "bruck");
  EXPECT_EQ(forced.find("reduce"), "");
  EXPECT_EQ(forced.find("all_reduce_"), "ring");
  EXPECT_EQ(forced.find("all_reduces"), "");
  EXPECT_EQ(forced.to_string(), "all_reduce:ring;allgather:bruck");
  EXPECT_EQ(
      complaint([] { ForcedAlgorithms::parse("allreduce"); }),
      "'allreduce' is not a choice of algorithm; write collective:algorithm, e.g. all_reduce:ring");
}

TEST(NamedPaths, TakesNamesAndPaths) {
  const auto named = NamedPaths::parse("toy=/opt/libtoy.so,b=/x=y");
  EXPECT_EQ(named.paths,
            (std::map<std::string, std::string>{{"toy", "/opt/libtoy.so"}, {"b", "/x=y"}}));
  EXPECT_EQ(named.to_string(), "b=/x=y,toy=/opt/libtoy.so");
  EXPECT_TRUE(NamedPaths::parse("").paths.empty());
  for (const char* text : {"/opt/libtoy.so", "=/opt/libtoy.so", "toy="})
    EXPECT_EQ(complaint([&] { NamedPaths::parse(text); }),
              "'" + std::string(text) + "' is not a named file; write name=/path/to/it");
}

TEST(ParseBytes, KnowsPowersOf1024) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4097"), 4097u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("3m"), 3u << 20);
  EXPECT_EQ(parse_bytes("5G"), uint64_t{5} << 30);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "K", "1Q", "-1", "1.5M", " 1", "99999999999999999999", "99999999999G"}) {
    EXPECT_EQ(complaint([&] { parse_bytes(text); }),
              "'" + std::string(text) +
                  "' is not a size; write bytes, or a number with K, M or G, e.g. 64K");
  }
}

TEST(ParseNumber, KeepsTheLimit) {
  EXPECT_EQ(parse_number("200", 200), 200u);
  EXPECT_EQ(complaint([] { parse_number("201", 200); }), "'201' is not a number from 0 to 200");
}

TEST(ParseList, RefusesEmptyEntries) {
  EXPECT_EQ(parse_list("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse_list(""), std::vector<std::string>{});
  EXPECT_EQ(complaint([] { parse_list("a,,b"); }),
            "'a,,b' is not a list; an entry is empty, write names separated by ,");
  EXPECT_EQ(complaint([] { parse_list("a,"); }),
            "'a,' is not a list; an entry is empty, write names separated by ,");
}

TEST(MetricsTarget, IsAPortOfTheLoopbackAddressUnlessAnAddressIsNamed) {
  EXPECT_TRUE(MetricsTarget::parse("").none());
  const MetricsTarget local = MetricsTarget::parse("9400");
  EXPECT_EQ(local.address, "127.0.0.1");
  EXPECT_EQ(local.port, 9400);
  EXPECT_EQ(local.to_string(), "127.0.0.1:9400");
  EXPECT_EQ(MetricsTarget::parse("10.0.0.5:1").address, "10.0.0.5");
  const MetricsTarget v6 = MetricsTarget::parse("[fd00::5]:9400");
  EXPECT_EQ(v6.address, "fd00::5");
  EXPECT_EQ(MetricsTarget::parse(v6.to_string()), v6);
}

TEST(MetricsTarget, IsAFileIfItEndsAsOneOfPrometheus) {
  const MetricsTarget file = MetricsTarget::parse("/var/lib/job.prom");
  EXPECT_EQ(file.file, "/var/lib/job.prom");
  EXPECT_EQ(file.port, 0);
  EXPECT_EQ(file.to_string(), "/var/lib/job.prom");
}

TEST(MetricsTarget, RefusesWhatIsNeither) {
  for (const char* text : {"job.prom", ".prom", "/tmp/metrics", "0", "65536", "host:9400", ":9400",
                           "10.0.0.5:", "fd00::5:9400", "[10.0.0.5]:9400", "-1"}) {
    const std::string told = complaint([&] { MetricsTarget::parse(text); });
    EXPECT_NE(told.find("write a port (9400)"), std::string::npos) << text;
  }
}

TEST(Compression, HasNames) {
  for (const std::string_view one : {"none", "bf16", "mx8", "mx4"})
    EXPECT_EQ(name(parse_compression(one)), one);
  EXPECT_EQ(parse_compression("mx8"), Compression::kMx8);
  EXPECT_NE(complaint([] {
              parse_compression("mx6");
            }).find("'mx6' is not a compression; write none, bf16, mx8 or mx4"),
            std::string::npos);
}

}  // namespace
}  // namespace hccl_like

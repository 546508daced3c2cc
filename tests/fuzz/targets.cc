#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "collectives/selection/profile.h"
#include "core/base/secret.h"
#include "core/settings/config.h"
#include "device/plugin_table.h"
#include "tests/fuzz/frames.h"
#include "tests/fuzz/greetings.h"
#include "tests/fuzz/shared_memory.h"
#include "tests/fuzz/wires.h"
#include "transport/loadable/module_library.h"
#include "transport/mesh/mesh.h"
#include "transport/mesh/report.h"
#include "transport/mesh/roster.h"
#include "transport/network/address.h"
#include "transport/same_host/commons.h"

namespace hccl_like::fuzz {
namespace {

std::string_view text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::vector<Bytes> none() { return {}; }

// ----------------------------------------------------------------------------- values of the store

void record(Input input) {
  require(!person(3, text_of(input)).empty(), "a rank without a name");
  const ProcessRecord read = ProcessRecord::parse(text_of(input));
  const std::string written = read.serialize();
  require(ProcessRecord::parse(written).serialize() == written,
          "a record changes when it is passed on");
}

std::vector<Bytes> records() {
  ProcessRecord one;
  one.id = std::string(32, 'a');
  one.nonce = std::string(64, 'b');
  one.host = "8d5b0a3e-boot 4026531836";
  one.hostname = "node7";
  one.pid = 4711;
  one.unix_name = "hccl-like-0123";
  one.addresses = {"10.0.0.5", "fd00::5"};
  one.port = 41234;
  one.commons = 9;
  one.area = 3;
  one.settings = {{"HCCL_LIKE_EAGER_BYTES", "4096"}};
  return {bytes_of(one.serialize())};
}

void roster(Input input) {
  size_t records = 0;
  visit_records(text_of(input), 3, [&](const nlohmann::json& record) {
    ++records;
    if (record.is_object()) ProcessRecord::from_json(record);
  });
  require(records == 3, "a roster of another size");
}

std::vector<Bytes> rosters() {
  const Bytes bytes = records()[0];
  const std::string one(bytes.begin(), bytes.end());
  std::string other = one;
  other.replace(other.find("node7"), 5, "node8");
  return {bytes_of(pack_records(std::vector{one, other, one})),
          bytes_of(pack_records(std::vector<std::string>{one, "no record", one}))};
}

void address(Input input) {
  if (const auto read = Address::parse(text_of(input)))
    require(Address::parse(read->to_string()).has_value(), "an address that cannot be read again");
}

// ---------------------------------------------------------------------------- settings of the user

void settings(Input input) {
  std::string text(text_of(input));
  std::vector<const char*> lines;
  for (size_t at = 0; at < text.size();) {
    lines.push_back(&text[at]);
    at = std::min(text.find('\n', at), text.size());
    if (at < text.size()) text[at++] = '\0';
  }
  const ParsedConfig read = parse_config(lines);
  require(!read.config.to_string().empty(), "settings that cannot be shown");
}

void secret(Input input) {
  const Secret read = Secret::parse(text_of(input));
  require(read.text() == text_of(input), "another secret than was given");
  require(read.empty() || read.to_string() == "(set)", "a secret that is shown");
}

std::vector<Bytes> secrets() { return {Bytes(32, 's'), Bytes(64, 'a')}; }

void profile(Input input) {
  const Profile read = Profile::parse(text_of(input), "a file");
  read.find(Collective::kAllReduce, Hosts::even(2, 2), 1000);
}

// ----------------------------------------------------------------------------- input of other code

// The entries are never called here; the name is read, so it is one that can be.
void table(Input input) {
  hcd_api api{};
  std::memcpy(&api, input.data(), std::min(input.size(), sizeof api));
  if (api.name != nullptr) api.name = "fuzzed";
  api.extensions = nullptr;
  const hcd_api complete = complete_table(api);
  require(complete.size == sizeof complete && complete.copy_d2h != nullptr, "an incomplete table");
}

std::vector<Bytes> tables() {
  Bytes all(sizeof(hcd_api), 1), few(sizeof(hcd_api), 0);
  for (Bytes* one : {&all, &few}) {
    const size_t size = sizeof(hcd_api);
    std::memcpy(one->data(), &size, sizeof size);
  }
  return {all, few};
}

// As above, of a transport module.
void module(Input input) {
  hct_api api{};
  std::memcpy(&api, input.data(), std::min(input.size(), sizeof api));
  if (api.name != nullptr) api.name = "fuzzed";
  const hct_api complete = complete_module_table(&api, "fuzzed", "here");
  require(complete.size == sizeof complete && complete.connect != nullptr, "an incomplete table");
}

std::vector<Bytes> modules() {
  Bytes all(sizeof(hct_api), 1);
  const size_t size = sizeof(hct_api);
  std::memcpy(all.data(), &size, sizeof size);
  return {all};
}

// A process of this host writes what it likes into the memory that it shows.
void commons(Input input) {
  static Commons shown("0123456789abcdef0123456789abcdef");
  static const PeerCommons seen{Fd(::dup(shown.fd()))};
  std::byte* const notes = shown.areas().data(0) + Commons::kNotesBegin;  // areas come first
  const size_t head = std::min(input.size(), size_t{200});
  std::memcpy(notes, input.data(), head);
  const size_t tail = std::min(input.size() - head, size_t{4096});
  std::memcpy(notes + offsetof(CommonsNotes, reasons), input.data() + head, tail);
  seen.belongs_to("0123456789abcdef0123456789abcdef");
  const uint32_t count = seen.given_up();
  for (uint32_t number = count - 20; number != count + 2; ++number) {
    seen.given_up(number);
    require(seen.reason(number).size() <= GuardedText::kBytes, "a reason that is too long");
  }
}

std::vector<Bytes> notes() { return {Bytes(300, 0), Bytes(4000, 0xff)}; }

}  // namespace

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

std::span<const Target> targets() {
  static const std::vector<std::string_view> kJson{"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "null",
                                                   "true",
                                                   "-1",
                                                   "18446744073709551616",
                                                   "1e400",
                                                   "\"\\ud800\"",
                                                   ":",
                                                   ",",
                                                   "\"id\"",
                                                   "\"port\"",
                                                   "\"pid\"",
                                                   "\"addresses\"",
                                                   "\"commons\"",
                                                   "\"area\"",
                                                   "\"settings\"",
                                                   "\"machine\""};
  static const Target kAll[] = {
      {"record", record, records, kJson},
      {"roster", roster, rosters, kJson},
      {"address", address, none, {":", "::", ".", "255", "%", "ffff"}},
      {"settings",
       settings,
       none,
       {"HCCL_LIKE_", "=", ",", "^", "1K", "-", "\n", "ALGO=", "allreduce:ring", ";"}},
      {"profile",
       profile,
       none,
       {"{", "[[8,\"ring\"]]", "\"layouts\"", "\"hccl_like_profile\": 1", "\"allreduce\"",
        "\"2x2\""}},
      {"hello", hello, hellos, {"hccl-like hello 02"}},
      {"replies", replies, reply_seeds, {}},
      {"sealed", sealed, sealed_seeds, {}},
      {"table", table, tables, {}},
      {"module", module, modules, {}},
      {"secret", secret, secrets, {}},
      {"commons", commons, notes, {}},
      {"ring", ring, ring_seeds, {}},
      {"slot", slot, slot_seeds, {}},
      {"handshake", handshake, handshake_seeds, {"hcclshm3"}},
      {"greeting", wire_greeting, wire_greeting_seeds, {"hccl-like hello 02"}},
      {"sealed_frames", sealed_frames, sealed_frame_seeds, {}},
      {"blocks", blocks, block_seeds, {}},
      {"frames", frames, frame_seeds, {"HL\x02"}},
      {"slots", slots, slots_seeds, {"HL\x05"}},
  };
  return kAll;
}

}  // namespace hccl_like::fuzz

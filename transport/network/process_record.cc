#include "transport/network/process_record.h"

#include <algorithm>

#include "core/base/error.h"
#include "transport/network/bounded_json.h"
#include "transport/wire/transport.h"

// ProcessRecord as JSON. Other users may write to the store, so every field is validated.
namespace hccl_like {
namespace {

constexpr size_t kMostAddresses = 64;
constexpr size_t kLongestField = 256;
constexpr size_t kMostEnds = 5;
constexpr size_t kMostNics = 1024;

[[noreturn]] void refuse(const std::string& why) {
  throw_error(ErrorCode::kMismatch, "a process record in the store cannot be used: " + why +
                                        "; check that no other program writes to this store");
}

std::string text_at(const nlohmann::json& record, const char* field) {
  const auto found = record.find(field);
  if (found == record.end() || !found->is_string()) refuse(std::string(field) + " is missing");
  auto text = found->get<std::string>();
  if (text.size() > kLongestField) refuse(std::string(field) + " is too long");
  return text;
}

int64_t number_at(const nlohmann::json& record, const char* field, int64_t most) {
  const auto found = record.find(field);
  if (found == record.end() || !found->is_number_unsigned())
    refuse(std::string(field) + " is missing");
  const auto number = found->get<uint64_t>();
  if (number > static_cast<uint64_t>(most)) refuse(std::string(field) + " is too large");
  return static_cast<int64_t>(number);
}

std::string digits_at(const nlohmann::json& record, const char* field, size_t digits) {
  auto text = text_at(record, field);
  if (text.size() != digits || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse(std::string(field) + " is malformed");
  return text;
}

constexpr std::string_view kHexDigits = "0123456789abcdef";

// Hexadecimal, because JSON strings are text and addresses are bytes.
std::string to_digits(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    digits += kHexDigits[value >> 4];
    digits += kHexDigits[value & 15];
  }
  return digits;
}

std::string from_digits(const std::string& digits) {
  if (digits.size() % 2 != 0 || digits.size() > 2 * Transport::kLongestAddress ||
      digits.find_first_not_of(kHexDigits) != std::string::npos)
    refuse("the address of a transport is malformed");
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(kHexDigits.find(digits[i]) << 4 | kHexDigits.find(digits[i + 1]));
  return bytes;
}

std::map<std::string, std::string> ends_of(const nlohmann::json& record) {
  std::map<std::string, std::string> ends;
  const auto found = record.find("ends");
  if (found == record.end()) return ends;
  if (!found->is_object() || found->size() > kMostEnds) refuse("ends are malformed");
  for (const auto& [name, digits] : found->items()) {
    if (!digits.is_string() || name.size() > kLongestField) refuse("ends are malformed");
    ends[name] = from_digits(digits.get<std::string>());
  }
  return ends;
}

// Reads an object whose values are strings.
std::map<std::string, std::string> texts_at(const nlohmann::json& record, const char* field) {
  std::map<std::string, std::string> texts;
  const auto found = record.find(field);
  if (found == record.end()) return texts;
  if (!found->is_object() || found->size() > kMostEnds)
    refuse(std::string(field) + " are malformed");
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string() || name.size() > kLongestField ||
        value.get_ref<const std::string&>().size() > kLongestRecord)
      refuse(std::string(field) + " are malformed");
    texts[name] = value.get<std::string>();
  }
  return texts;
}

// Compact, because every rank reads one per host: [sockets, nodes, cores, threads, [[name, pci,
// node, Mbit/s], ...]].
nlohmann::json packed(const Machine& machine) {
  auto nics = nlohmann::json::array();
  for (const auto& nic : machine.nics) nics.push_back({nic.name, nic.pci, nic.node, nic.megabits});
  return {machine.sockets, machine.nodes, machine.cores, machine.threads, nics};
}

std::optional<Machine> machine_of(const nlohmann::json& record) {
  const auto found = record.find("machine");
  if (found == record.end()) return std::nullopt;
  try {
    Machine machine{.sockets = found->at(0),
                    .nodes = found->at(1),
                    .cores = found->at(2),
                    .threads = found->at(3),
                    .nics = {}};
    if (found->at(4).size() > kMostNics) refuse("machine is malformed");
    for (const auto& nic : found->at(4))
      machine.nics.push_back(
          {.name = nic.at(0), .pci = nic.at(1), .node = nic.at(2), .megabits = nic.at(3)});
    for (const auto& nic : machine.nics)
      if (std::max(nic.name.size(), nic.pci.size()) > kLongestField) refuse("machine is malformed");
    return machine;
  } catch (const nlohmann::json::exception&) {
    refuse("machine is malformed");
  }
}

}  // namespace

std::string ProcessRecord::serialize() const {
  nlohmann::json record{
      {"protocol", kProtocolVersion},
      {"id", id},
      {"nonce", nonce},
      {"host", host},
      {"hostname", hostname},
      {"pid", pid},
      {"unix", unix_name},
      {"addresses", addresses},
      {"port", port},
  };
  if (commons) record["commons"] = *commons;
  if (area) record["area"] = *area;
  if (!settings.empty()) record["settings"] = settings;
  if (!device.empty()) record["device"] = device;
  if (machine) record["machine"] = packed(*machine);
  for (const auto& [name, address] : ends) record["ends"][name] = to_digits(address);
  return record.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

ProcessRecord ProcessRecord::parse(std::string_view text) {
  if (text.size() > kLongestRecord) refuse("it is too long");
  return from_json(parse_bounded(text));
}

ProcessRecord ProcessRecord::from_json(const nlohmann::json& json) {
  if (!json.is_object()) refuse("it is no JSON object");
  if (const auto version = number_at(json, "protocol", UINT32_MAX); version != kProtocolVersion)
    throw_error(ErrorCode::kMismatch, "it speaks version " + std::to_string(version) +
                                          " of the protocol and this rank version " +
                                          std::to_string(kProtocolVersion) +
                                          ": install the same release of hccl-like on all hosts");
  ProcessRecord record;
  record.id = digits_at(json, "id", kIdDigits);
  record.nonce = digits_at(json, "nonce", kNonceDigits);
  record.host = text_at(json, "host");
  record.hostname = text_at(json, "hostname");
  record.pid = number_at(json, "pid", INT64_MAX);
  record.unix_name = text_at(json, "unix");
  record.port = static_cast<uint16_t>(number_at(json, "port", UINT16_MAX));
  if (json.contains("commons"))
    record.commons = static_cast<int>(number_at(json, "commons", INT32_MAX));
  if (json.contains("area"))
    record.area = static_cast<uint32_t>(number_at(json, "area", UINT32_MAX));
  record.ends = ends_of(json);
  record.settings = texts_at(json, "settings");
  if (json.contains("device")) record.device = text_at(json, "device");
  record.machine = machine_of(json);
  const auto addresses = json.find("addresses");
  if (addresses == json.end() || !addresses->is_array() || addresses->size() > kMostAddresses)
    refuse("addresses are missing");
  for (const auto& address : *addresses) {
    if (!address.is_string() || address.get_ref<const std::string&>().size() > kLongestField)
      refuse("addresses are malformed");
    record.addresses.push_back(address.get<std::string>());
  }
  return record;
}

}  // namespace hccl_like

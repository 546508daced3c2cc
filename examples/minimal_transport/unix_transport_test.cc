// Tests this module's own promises beyond the contract: it speaks version 1 only, and keeps to one
// host. Plain C++, as the module.
#include <dlfcn.h>

#include <cstdio>

#include "transport/module.h"

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  ++failures;
}

int watch(void*, int, uint32_t, void (*)(void*, uint32_t), void*) { return 0; }
void forget(void*, int) {}
void ring(void*) {}
void nap(void*, int) {}

}  // namespace

int main(int count, char** arguments) {
  void* const library = count == 2 ? ::dlopen(arguments[1], RTLD_NOW) : nullptr;
  const auto get_api = library == nullptr
                           ? nullptr
                           : reinterpret_cast<hct_get_api_fn>(::dlsym(library, HCT_GET_API_SYMBOL));
  if (get_api == nullptr) {
    std::fprintf(stderr, "usage: unix_transport_test PATH; %s\n", ::dlerror());
    return 2;
  }
  expect(get_api(HCT_MAJOR + 1, 0) == nullptr, "another major version is refused");
  const hct_api* const api = get_api(HCT_MAJOR, HCT_MINOR);
  const hct_host host{sizeof host, nullptr, watch, forget, ring, nap};
  hct_end* end = nullptr;
  expect(api->open(&host, "0123456789abcdef0123456789abcdef", &end) == 0, "it opens");
  const hct_region address = api->address(end);
  expect(address.bytes > sizeof(unsigned short), "the kernel gave it a name");
  hct_peer peer{sizeof peer,  "fedcba9876543210fedcba9876543210", "there", 0, address.data,
                address.bytes};
  expect(api->can_reach(end, &peer) == 0, "a peer on another host is out of reach");
  peer.same_host = 1;
  expect(api->can_reach(end, &peer) != 0, "one on this host is not");
  hct_wire* wire = nullptr;
  peer.address_bytes = sizeof(unsigned short);
  expect(api->connect(end, &peer, HCT_CONNECTOR, &wire) != 0, "nobody listens at no address");
  expect(*api->last_error() != 0, "it says why");
  api->close(end);
  return failures == 0 ? 0 : 1;
}

// hccl_like_plugin_contract PATH [GoogleTest's options]: checks that a device plugin keeps its
// contract. The Python package has it as a library, which `hccl-like contract` calls.
//
// For those who write plugins: it loads the library as hccl-like does, with memory from mem_alloc
// and streams from stream_create, and runs the tests that hccl-like's own plugins pass. Ends with
// 77 if the plugin cannot start because there is no such device here. A plugin without mem_alloc is
// tested by a program of its vendor's, with device/testing/plugin_contract.h.
#include "device/testing/plugin_contract.h"

#include <dlfcn.h>

#include <iostream>

#include "device/plugin_table.h"

namespace hccl_like {
namespace {

constexpr int kNoDevice = 77;

const hcd_api* loaded = nullptr;

void load(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw_error(ErrorCode::kDevice, ::dlerror());
  const auto get_api = reinterpret_cast<hcd_get_api_fn>(::dlsym(library, HCD_GET_API_SYMBOL));
  if (get_api == nullptr)
    throw_error(ErrorCode::kDevice, path + " does not export " HCD_GET_API_SYMBOL);
  loaded = &negotiate(get_api, path);
  if (!Device(*loaded, path).can_allocate())
    throw_error(ErrorCode::kMisuse, "the plugin has no mem_alloc, and so no memory to try it on");
}

void* allocate(size_t bytes) {
  void* base = nullptr;
  EXPECT_EQ(loaded->mem_alloc(0, bytes, &base), HCD_OK) << loaded->last_error();
  return base;
}
void free_again(void* base) {
  EXPECT_EQ(loaded->mem_free(0, base), HCD_OK) << loaded->last_error();
}

std::vector<PluginUnderTest> plugins() {
  if (loaded == nullptr) return {};
  return {
      {.name = "Loaded", .api = loaded, .allocate = allocate, .free = free_again, .streams = {0}}};
}

INSTANTIATE_TEST_SUITE_P(Plugin, PluginContract, ::testing::ValuesIn(plugins()), plugin_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PluginContract);

}  // namespace
}  // namespace hccl_like

// Returns the exit code.
extern "C" __attribute__((visibility("default"))) int hccl_like_plugin_contract(int count,
                                                                                char** arguments) {
  if (count < 2 || arguments[1][0] == '-') {
    std::cerr << "usage: " << arguments[0] << " /path/to/plugin.so [--gtest_...]\n";
    return 2;
  }
  try {
    hccl_like::load(arguments[1]);
  } catch (const hccl_like::Exception& exception) {
    std::cerr << exception.what() << "\n";
    const bool none = exception.error().message.find("cannot start") != std::string::npos;
    return none ? hccl_like::kNoDevice : 1;
  }
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}

int main(int count, char** arguments) { return hccl_like_plugin_contract(count, arguments); }

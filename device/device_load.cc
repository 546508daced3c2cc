// Loads and starts a plugin library. Reports crashes, refusals and hangs of the plugin.
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "core/base/crash_note.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/own_thread.h"
#include "device/device.h"
#include "device/plugin_table.h"

namespace hccl_like {
namespace {

using namespace std::chrono_literals;

// Device runtimes take seconds to start.
constexpr std::chrono::seconds kUnusual = 10s;
constexpr std::chrono::seconds kLoadTimeout = 60s;

// Shared by the loading and the waiting thread, so that it outlives a timeout of either.
struct Loading {
  std::mutex mutex;
  std::condition_variable changed;
  const char* entry = "a constructor";  // current entry of the plugin
  bool over = false;
  std::unique_ptr<Device> device;
  std::exception_ptr failure;

  // Names the plugin in a crash note for a crash in `name`.
  CrashNote enter(const std::string& path, const char* name) {
    {
      const std::lock_guard lock(mutex);
      entry = name;
    }
    return CrashNote("hccl-like: the device plugin " + path + " crashed this process in " + name +
                     "; ask its vendor, or go without it: HCCL_LIKE_DEVICE_PLUGINS=NAME=none, with "
                     "the device's name\n");
  }
};

// A plugin crash ends the process; the note names the vendor's plugin. A trial load in a child
// process would start the device runtime on every rank and prove nothing about this process.
std::unique_ptr<Device> load_from(const std::string& path, Loading& loading) {
  void* library = nullptr;
  {
    const CrashNote note = loading.enter(path, "a constructor");
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw_error(ErrorCode::kDevice, "cannot load the device plugin " + path + ": " +
                                        (why == nullptr ? "no reason given" : why));
  }
  const auto get_api = reinterpret_cast<hcd_get_api_fn>(::dlsym(library, HCD_GET_API_SYMBOL));
  if (get_api == nullptr) {
    throw_error(ErrorCode::kDevice,
                path + " is not a device plugin: it does not export " HCD_GET_API_SYMBOL);
  }
  const hcd_api* api = nullptr;
  {
    const CrashNote note = loading.enter(path, HCD_GET_API_SYMBOL);
    api = &negotiate(get_api, path);
  }
  const CrashNote note = loading.enter(path, "init");
  return std::make_unique<Device>(*api, path);
}

void run(const std::string& path, const std::shared_ptr<Loading>& loading) {
  std::unique_ptr<Device> device;
  std::exception_ptr failure;
  try {
    device = load_from(path, *loading);
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(loading->mutex);
    loading->device = std::move(device);
    loading->failure = std::move(failure);
    loading->over = true;
  }
  loading->changed.notify_all();
}

}  // namespace

// Runs on its own thread: the only way to wait for foreign code with a timeout.
std::unique_ptr<Device> Device::load(const std::string& library_path) {
  const auto loading = std::make_shared<Loading>();
  own_thread("loads a device plugin", [library_path, loading] {
    run(library_path, loading);
  }).detach();
  std::unique_lock lock(loading->mutex);
  const auto over = [&] { return loading->over; };
  if (!loading->changed.wait_for(lock, kUnusual, over)) {
    log_warn("waiting for the device plugin " + library_path + ", which is in " + loading->entry);
    if (!loading->changed.wait_for(lock, kLoadTimeout - kUnusual, over)) {
      throw_error(ErrorCode::kTimeout,
                  "the device plugin " + library_path + " hangs: it has been in " + loading->entry +
                      " for " + std::to_string(kLoadTimeout.count()) +
                      " seconds; ask its vendor, or go without it: "
                      "HCCL_LIKE_DEVICE_PLUGINS=NAME=none, with the device's name");
    }
  }
  // Leaves no other reference to the exception than the catcher's.
  if (loading->failure) std::rethrow_exception(std::exchange(loading->failure, nullptr));
  log_info([&] {
    return "devices of type " + loading->device->name() + " are served by " + library_path;
  });
  return std::move(loading->device);
}

}  // namespace hccl_like

// torch.accelerator.Graph on the device.
#include "glue/graph.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>

#include <utility>

#include "glue/convert.h"
#include "runtime/capture.h"

namespace torch_sim {
namespace {

class SimGraph final : public at::GraphImplInterface {
 public:
  explicit SimGraph(const at::GraphImplArgs&) {}

  // All modes are alike: only work of the capturing streams is refused. Every graph has memory of
  // its own.
  void capture_begin(c10::MempoolId_t, at::GraphCaptureMode) override {
    graph_.reset();
    Capture::begin(current_stream(current_device()));
  }
  void capture_end() override { graph_ = Capture::end(current_stream(current_device())); }
  void instantiate() override { captured(); }
  void replay() override { Graph::launch(captured(), current_stream(current_device())); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return {reinterpret_cast<uintptr_t>(this), 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "sim: graphs cannot be written to files");
  }

 private:
  const std::shared_ptr<const Graph>& captured() const {
    TORCH_CHECK(graph_, "sim: this graph has captured nothing");
    return graph_;
  }

  std::shared_ptr<const Graph> graph_;
};

}  // namespace

void register_graphs() {
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(c10::DeviceType::PrivateUse1, /*lower_case=*/false),
      [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<SimGraph>(args);
      });
}

}  // namespace torch_sim
#else  // PyTorch 2.12 has no such interface
namespace torch_sim {
void register_graphs() {}
}  // namespace torch_sim
#endif

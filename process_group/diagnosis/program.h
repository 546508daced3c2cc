#pragma once
// Current Python lines of the program's threads.
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace hccl_like {

struct ProgramLine {
  std::string file;
  int line = 0;
  std::string function;

  // "digits/train.py:33": file with its parent folder, which is the same on every host.
  std::string text() const;
  // "step in digits/train.py".
  std::string function_text() const;
};

// A program thread and its innermost line outside torch, the standard library and hccl-like.
struct ProgramThread {
  std::thread::id id;
  bool is_main = false;
  ProgramLine line;
};

// Set once by the language binding. Both functions may wait for the interpreter; neither throws.
struct ProgramView {
  // Line of the calling thread; nothing if it runs no program code.
  std::optional<ProgramLine> (*here)();
  std::vector<ProgramThread> (*threads)();
};
void set_program_view(ProgramView view);

// Nothing without a view. Hold no lock.
std::optional<ProgramLine> line_here();
// All threads; empty after `limit`, because the hanging thread may hold the GIL.
std::vector<ProgramThread> program_threads(std::chrono::milliseconds limit);

}  // namespace hccl_like

#pragma once
// Where the program is, in its own language: lines of Python.
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

  // "digits/train.py:33": the file with its folder, as it is called on every host.
  std::string text() const;
  // "step in digits/train.py".
  std::string function_text() const;
};

// A thread that runs the program, and the innermost line that is not torch's, the language's or
// ours.
struct ProgramThread {
  std::thread::id id;
  bool is_main = false;
  ProgramLine line;
};

// Set once, by whoever knows the program's language; both may wait for its interpreter, and throw
// nothing.
struct ProgramView {
  // Of the calling thread; nothing if it runs none of the program.
  std::optional<ProgramLine> (*here)();
  std::vector<ProgramThread> (*threads)();
};
void set_program_view(ProgramView view);

// Nothing where no view was set. Not with a lock held.
std::optional<ProgramLine> line_here();
// All threads, or none if the interpreter does not answer in time: whoever holds its lock may be
// what hangs.
std::vector<ProgramThread> program_threads(std::chrono::milliseconds limit);

}  // namespace hccl_like

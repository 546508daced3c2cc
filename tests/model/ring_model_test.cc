// The ring and its sleepers (transport/shm/ring.h, sleeper.h), in every execution that the memory
// model allows: nothing is lost or overwritten, and nobody sleeps on while there is work for him.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "tests/model/modelled_std.h"
#include "tests/model/verdict.h"
#include "tests/number_setting.h"
#include "transport/shm/ring.h"

namespace hccl_like::model {
namespace {

// As an engine sleeps (collectives/engine/engine.cc: sleep) on one end of one ring.
struct Bell {
  size_t number = Explorer::active()->add_bell();

  void ring() { Explorer::active()->ring(number, std::source_location::current()); }
  void sleep() { Explorer::active()->sleep(number, std::source_location::current()); }
};

// A thread is at the top of its loop: all it knows is the number of the byte, and what its end
// remembers of the other's index.
void landmark(size_t byte, size_t known) {
  Explorer::active()->landmark(uint64_t{byte} << 32 | known);
}

constexpr size_t kSize = 2;

struct Shared {
  RingIndices indices;
  std::array<std::byte, 2 * kSize> data{};
  std::array<Plain, kSize> slots;  // stand for the bytes of `data`
  Bell of_reader, of_writer;
};

template <class Writer>
void write_all(Shared& shared, Writer writer, size_t bytes) {
  for (size_t i = 0; i < bytes;) {
    landmark(i, writer.space(0));
    if (writer.space() == 0) {
      if (writer.prepare_sleep()) shared.of_writer.sleep();
      writer.end_sleep();
      continue;
    }
    const auto value = static_cast<std::byte>(i + 1);
    shared.slots[i % kSize].write();
    writer.put(&value, 1);
    if (writer.publish()) shared.of_reader.ring();
    ++i;
  }
}

template <class Reader>
void read_all(Shared& shared, Reader reader, size_t bytes) {
  for (size_t i = 0; i < bytes;) {
    landmark(i, reader.available(0));
    if (reader.available() == 0) {
      if (reader.prepare_sleep(1)) shared.of_reader.sleep();
      reader.end_sleep();
      continue;
    }
    shared.slots[i % kSize].read();
    check(reader.data()[0] == static_cast<std::byte>(i + 1), "another byte than was sent");
    reader.drop(1);
    if (reader.publish()) shared.of_writer.ring();
    ++i;
  }
}

template <class Writer = RingWriter, class Reader = RingReader>
Verdict pass(size_t bytes, Flaw flaw = {}, size_t startles = 0) {
  return Explorer::explore(
      [=](Explorer& explorer) {
        const auto shared = std::make_shared<Shared>();
        RingIndices& indices = shared->indices;
        std::byte* const data = shared->data.data();
        explorer.thread("writer",
                        [=, &indices] { write_all(*shared, Writer(indices, data, kSize), bytes); });
        explorer.thread("reader",
                        [=, &indices] { read_all(*shared, Reader(indices, data, kSize), bytes); });
        explorer.startle(startles);
      },
      flaw);
}

TEST(RingModel, NothingIsLostAndNobodySleepsTooLong) {
  // Fits; is full once; goes round twice and more.
  constexpr std::array<size_t, 7> kStates{60, 600, 9'000, 35'000, 80'000, 130'000, 130'000};
  // With 5 the writer and the reader have been round twice. More take as long as all other checks.
  const size_t most = std::min(number_setting("HCCL_LIKE_MODEL_BYTES", 5), kStates.size());
  for (size_t bytes = 1; bytes <= most; ++bytes)
    EXPECT_TRUE(holds(pass(bytes), kStates[bytes - 1], bytes > 1 ? kMany : 1000))
        << bytes << " bytes";
}

TEST(RingModel, AWakeUpForAnotherReasonDoesNoHarm) { EXPECT_TRUE(holds(pass(3, {}, 2), 9'000)); }

TEST(RingModel, WithoutTheFenceOfEitherSideAWakeUpIsLost) {
  EXPECT_TRUE(fails_with(pass(1, {.thread = "writer"}), kLost));
  EXPECT_TRUE(fails_with(pass(1, {.thread = "reader"}), kLost));
}

TEST(RingModel, IndicesMustBeReleasedAndAcquired) {
  for (const char* function : {"RingWriter::publish", "RingReader::available"})
    EXPECT_TRUE(fails_with(pass(1, {.relaxed_inside = function}), kRace)) << function;
  for (const char* function : {"RingReader::publish", "RingWriter::space"})
    EXPECT_TRUE(fails_with(pass(3, {.relaxed_inside = function}), kRace)) << function;
}

struct ReaderThatDoesNotLookAgain : RingReader {
  using RingReader::RingReader;
  bool prepare_sleep(size_t want) {
    RingReader::prepare_sleep(want);
    return true;
  }
};
struct WriterThatDoesNotLookAgain : RingWriter {
  using RingWriter::RingWriter;
  bool prepare_sleep() {
    RingWriter::prepare_sleep();
    return true;
  }
};

TEST(RingModel, WhoeverDoesNotLookAgainBeforeItSleepsMayNeverWake) {
  EXPECT_TRUE(fails_with(pass<RingWriter, ReaderThatDoesNotLookAgain>(1), kLost));
  EXPECT_TRUE(fails_with(pass<WriterThatDoesNotLookAgain>(3), kLost));
}

// Arms only once it has looked.
struct ReaderThatArmsLate : RingReader {
  ReaderThatArmsLate(RingIndices& indices, const std::byte* data, size_t size)
      : RingReader(indices, data, size), reader(indices.reader) {}
  bool prepare_sleep(size_t want) {
    const bool nothing = available(want) < want;
    reader.arm();
    return nothing;
  }
  Sleeper& reader;
};

TEST(RingModel, WhoeverArmsAfterTheLastLookMayNeverWake) {
  EXPECT_TRUE(fails_with(pass<RingWriter, ReaderThatArmsLate>(1), kLost));
}

// Asks whether anybody sleeps before it has published.
struct WriterThatAsksEarly : RingWriter {
  WriterThatAsksEarly(RingIndices& indices, std::byte* data, size_t size)
      : RingWriter(indices, data, size), reader(indices.reader) {}
  bool publish() {
    const bool sleeps = reader.must_wake();
    RingWriter::publish();
    return sleeps;
  }
  Sleeper& reader;
};
struct ReaderThatAsksEarly : RingReader {
  ReaderThatAsksEarly(RingIndices& indices, const std::byte* data, size_t size)
      : RingReader(indices, data, size), writer(indices.writer) {}
  bool publish() {
    const bool sleeps = writer.must_wake();
    RingReader::publish();
    return sleeps;
  }
  Sleeper& writer;
};

TEST(RingModel, WhoeverLooksForSleepersBeforeItPublishesMayLeaveThemAsleep) {
  EXPECT_TRUE(fails_with(pass<WriterThatAsksEarly>(1), kLost));
  EXPECT_TRUE(fails_with(pass<RingWriter, ReaderThatAsksEarly>(3), kLost));
}

struct ReaderThatKeepsQuiet : RingReader {
  using RingReader::RingReader;
  bool publish() {
    RingReader::publish();
    return false;
  }
};

TEST(RingModel, ASleeperThatIsNotRungForIsLost) {
  EXPECT_TRUE(fails_with(pass<RingWriter, ReaderThatKeepsQuiet>(3), kLost));
}

}  // namespace
}  // namespace hccl_like::model

#include "transport/security/greeting.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "transport/security/random.h"

namespace hccl_like {
namespace {

using greeting::Calling;
using greeting::Hosting;
using Verdict = greeting::Hosting::Verdict;

JobKey job_of(const char* secret) {
  Config config;
  config.secret = Secret::parse(std::string(secret) + std::string(40, '.'));
  return JobKey::of(config);
}

// The messages of a greeting that succeeds.
struct Talk {
  Talk(const Identity& from, const Identity& to) : calling(from, to), hosting(to) {
    hello = calling.hello();
    EXPECT_EQ(hosting.hear_hello(hello), Verdict::kBelieved);
    answer = hosting.answer();
    EXPECT_TRUE(calling.believes_answer(answer));
    commit = calling.commit();
    EXPECT_TRUE(hosting.believes_commit(commit));
    welcome = hosting.welcome();
    EXPECT_TRUE(calling.believes_welcome(welcome));
  }
  Calling calling;
  Hosting hosting;
  std::string hello, answer, commit, welcome;
};

const JobKey kJob = job_of("ours");

TEST(Greeting, EndsWithBothKnowingTheOtherAndAKeyThatNobodyElseHas) {
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const Talk first(a, b), second(a, b);
  EXPECT_EQ(first.hosting.peer_id(), a.id);
  EXPECT_EQ(first.calling.session().bytes(), first.hosting.session().bytes());
  EXPECT_NE(first.calling.session().bytes(), second.calling.session().bytes());
  EXPECT_NE(first.hello, second.hello);
  EXPECT_NE(first.answer, second.answer);
}

TEST(Greeting, NeverShowsTheNonceOrTheSecret) {
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const Talk talk(a, b);
  const std::string said = talk.hello + talk.answer + talk.commit + talk.welcome;
  EXPECT_EQ(said.find(b.nonce.substr(0, 16)), std::string::npos);
  EXPECT_EQ(said.find(a.nonce.substr(0, 16)), std::string::npos);
  EXPECT_EQ(said.find(b.door.bytes()), std::string::npos);
}

TEST(Greeting, RefusesEveryBitThatIsWrong) {
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const auto each_flip = [](const std::string& right, const auto& believed) {
    for (size_t bit = 0; bit < 8 * right.size(); ++bit) {
      std::string wrong = right;
      wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_FALSE(believed(wrong)) << "bit " << bit;
    }
    for (size_t bytes = 0; bytes < right.size(); ++bytes)
      ASSERT_FALSE(believed(right.substr(0, bytes))) << bytes << " bytes";
    ASSERT_FALSE(believed(right + '\0'));
    ASSERT_FALSE(believed(right + right));
  };
  Calling calling(a, b);
  const std::string hello = calling.hello();
  each_flip(hello, [&](const std::string& text) {
    return Hosting(b).hear_hello(text) == Verdict::kBelieved;
  });
  Hosting hosting(b);
  ASSERT_EQ(hosting.hear_hello(hello), Verdict::kBelieved);
  const std::string answer = hosting.answer();
  each_flip(answer, [&](const std::string& text) { return calling.believes_answer(text); });
  ASSERT_TRUE(calling.believes_answer(answer));
  const std::string commit = calling.commit();
  each_flip(commit, [&](const std::string& text) { return hosting.believes_commit(text); });
  ASSERT_TRUE(hosting.believes_commit(commit));
  each_flip(hosting.welcome(),
            [&](const std::string& text) { return calling.believes_welcome(text); });
}

TEST(Greeting, AnotherSecretProvesNothing) {
  const JobKey other = job_of("theirs");
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const Identity forged_b = make_identity(other, b.id, b.nonce);
  EXPECT_EQ(Hosting(b).hear_hello(Calling(a, forged_b).hello()), Verdict::kUnproved);
  EXPECT_EQ(Hosting(b).hear_hello(Calling(a, make_identity({}, b.id, b.nonce)).hello()),
            Verdict::kUnproved);
  // An impostor that believes everything cannot answer.
  Calling calling(a, b);
  calling.hello();
  Calling as_if(a, forged_b);
  Hosting impostor(forged_b);
  ASSERT_EQ(impostor.hear_hello(as_if.hello()), Verdict::kBelieved);
  EXPECT_FALSE(calling.believes_answer(impostor.answer()));
}

TEST(Greeting, TheRecordOfTheProcessIsNeededBesideTheSecret) {
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const Identity guessed = make_identity(kJob, b.id, random_hex(kNonceDigits / 2));
  EXPECT_EQ(Hosting(b).hear_hello(Calling(a, guessed).hello()), Verdict::kUnproved);
}

TEST(Greeting, AnEarlierGenerationOfAProcessIsAnotherProcess) {
  const Identity a = new_identity(kJob), before = new_identity(kJob), now = new_identity(kJob);
  EXPECT_EQ(Hosting(now).hear_hello(Calling(a, before).hello()), Verdict::kOtherProcess);
  EXPECT_EQ(Hosting(now).hear_hello(Calling(now, now).hello()), Verdict::kOtherProcess);
}

TEST(Greeting, EndsThatDoNotAgreeOnEncryptionDoNotMeet) {
  const Identity a = new_identity(kJob), b = new_identity(kJob, /*sealed=*/true);
  const Identity plain = make_identity(kJob, b.id, b.nonce, /*sealed=*/false);
  EXPECT_EQ(Hosting(b).hear_hello(Calling(a, plain).hello()), Verdict::kUnproved);
}

TEST(Greeting, WordsOfAnotherConnectionFitNowhere) {
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const Talk heard(a, b);
  Calling calling(a, b);
  Hosting hosting(b);
  ASSERT_EQ(hosting.hear_hello(calling.hello()), Verdict::kBelieved);
  EXPECT_FALSE(calling.believes_answer(heard.answer));
  ASSERT_TRUE(calling.believes_answer(hosting.answer()));
  EXPECT_FALSE(hosting.believes_commit(heard.commit));
  ASSERT_TRUE(hosting.believes_commit(calling.commit()));
  EXPECT_FALSE(calling.believes_welcome(heard.welcome));
}

TEST(Greeting, AReplayedHelloGetsAnAnswerOfWhichNothingFollows) {
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const Talk heard(a, b);
  Hosting hosting(b);
  ASSERT_EQ(hosting.hear_hello(heard.hello), Verdict::kBelieved)
      << "HeardHellos is what refuses it";
  EXPECT_EQ(hosting.fresh(), heard.hosting.fresh());
  EXPECT_NE(hosting.answer(), heard.answer);
  EXPECT_FALSE(hosting.believes_commit(heard.commit));
}

TEST(Greeting, WhatOneEndSaysIsNotTakenFromTheOther) {
  const Identity a = new_identity(kJob), b = new_identity(kJob);
  const Talk talk(a, b);
  // Reflected: b's own door, or a's, with words of the other role.
  EXPECT_NE(Hosting(a).hear_hello(talk.hello), Verdict::kBelieved);
  Calling calling(a, b);
  const std::string hello = calling.hello();
  EXPECT_FALSE(calling.believes_answer(hello));
  EXPECT_FALSE(calling.believes_answer(talk.answer));
  Hosting hosting(b);
  ASSERT_EQ(hosting.hear_hello(hello), Verdict::kBelieved);
  const std::string answer = hosting.answer();
  EXPECT_FALSE(hosting.believes_commit(answer));
  const std::string tag = answer.substr(answer.size() - kTagBytes);
  EXPECT_FALSE(hosting.believes_commit(std::string(greeting::kCommitMagic) + tag));
  ASSERT_TRUE(calling.believes_answer(answer));
  const std::string commit = calling.commit();
  EXPECT_FALSE(calling.believes_welcome(std::string(greeting::kWelcomeMagic) +
                                        commit.substr(greeting::kCommitMagic.size())));
}

TEST(Greeting, HelloOfAnyBytesIsReadWithoutHarm) {
  for (size_t bytes = 0; bytes < 300; ++bytes) {
    const std::string text = random_bytes(bytes);
    EXPECT_FALSE(greeting::parse_hello(text));
    EXPECT_FALSE(greeting::parse_hello(std::string(greeting::kHelloMagic) + text));
  }
  EXPECT_TRUE(greeting::could_be_hello(""));
  EXPECT_TRUE(greeting::could_be_hello("hccl-like he"));
  EXPECT_FALSE(greeting::could_be_hello("hccl-like hello 01"));
  EXPECT_FALSE(greeting::could_be_hello("GET / HTTP/1.1"));
}

TEST(Key, IsAnotherOneForEachLabelAndEachListOfParts) {
  const Key key = Key::from_secret("secret");
  EXPECT_NE(key.tag("a", {"bc"}), key.tag("ab", {"c"}));
  EXPECT_NE(key.tag("a", {"b", "c"}), key.tag("a", {"bc"}));
  EXPECT_NE(key.tag("a", {"", "b"}), key.tag("a", {"b", ""}));
  EXPECT_NE(key.derive("a", {}).bytes(), key.derive("b", {}).bytes());
  EXPECT_NE(key.bytes(), Key::from_secret("secret ").bytes());
  EXPECT_TRUE(key.proves(key.tag("a", {"b"}), "a", {"b"}));
  EXPECT_FALSE(key.proves(key.tag("a", {"b"}).substr(1), "a", {"b"}));
  EXPECT_FALSE(key.proves("", "a", {"b"}));
  EXPECT_THROW(Key("too short"), Exception);
}

// Computed by another program.
TEST(Key, DoesNotChangeFromReleaseToRelease) {
  const std::string tag = Key::from_secret("secret").tag("label", {"part"});
  std::string digits;
  for (const char byte : tag.substr(0, 4)) {
    digits += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  EXPECT_EQ(digits, "bd61101f");
}

TEST(Proof, BelongsToOneKeyOneValueAndOneSecret) {
  const std::string stored = proof::seal(kJob, "hccl_like/2/1", "value");
  EXPECT_EQ(stored.substr(0, 5), "value");
  EXPECT_TRUE(proof::open(kJob, "hccl_like/2/1", stored).proved);
  EXPECT_EQ(proof::open(kJob, "hccl_like/2/1", stored).value, "value");
  EXPECT_FALSE(proof::open(kJob, "hccl_like/2/0", stored).proved);
  EXPECT_FALSE(proof::open(JobKey(), "hccl_like/2/1", stored).proved);
  EXPECT_FALSE(proof::open(job_of("theirs"), "hccl_like/2/1", stored).proved);
  for (size_t at = 0; at < stored.size(); ++at) {
    std::string wrong = stored;
    wrong[at] = static_cast<char>(wrong[at] ^ 1);
    EXPECT_FALSE(proof::open(kJob, "hccl_like/2/1", wrong).proved) << "byte " << at;
  }
  EXPECT_FALSE(proof::open(kJob, "key", "").proved);
  EXPECT_EQ(proof::open(kJob, "key", "short").value, "short");
  EXPECT_TRUE(proof::open(kJob, "key", proof::seal(kJob, "key", "")).proved);
}

}  // namespace
}  // namespace hccl_like

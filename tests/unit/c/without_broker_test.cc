// What the C ABI answers where there is nothing to work on.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "gpumem.h"

namespace {

bool no_usage(const gpumem_usage*, void*) { return true; }
bool no_size_class(const gpumem_size_class*, void*) { return true; }
bool no_block(const gpumem_block*, void*) { return true; }

using Calls = std::map<std::string, std::function<gpumem_status()>>;

const Calls& calls_without_a_handle() {
  static gpumem_slice* slice = nullptr;
  static gpumem_allocator* allocator = nullptr;
  static gpumem_address address = 0;
  static std::uint8_t tag = 0;
  static gpumem_statistics statistics = GPUMEM_STATISTICS_INIT;
  static const Calls kCalls{
      {"connect", [] { return gpumem_session_connect(nullptr, nullptr); }},
      {"session_close", [] { return gpumem_session_close(nullptr); }},
      {"ping", [] { return gpumem_session_ping(nullptr); }},
      {"usage", [] { return gpumem_session_usage(nullptr, no_usage, nullptr); }},
      {"charge", [] { return gpumem_session_charge(nullptr, "GPU", 1); }},
      {"grow_all", [] { return gpumem_session_grow_all(nullptr, nullptr, 0, nullptr); }},
      {"canceller_create", [] { return gpumem_canceller_create(nullptr); }},
      {"canceller_cancel", [] { return gpumem_canceller_cancel(nullptr); }},
      {"on_pressure_owned",
       [] { return gpumem_session_on_pressure_owned(nullptr, nullptr, nullptr, nullptr); }},
      {"on_pressure", [] { return gpumem_session_on_pressure(nullptr, nullptr, nullptr); }},
      {"slice_open", [] { return gpumem_slice_open(nullptr, nullptr, &slice); }},
      {"grow", [] { return gpumem_slice_grow(nullptr, 1, nullptr, nullptr); }},
      {"shrink", [] { return gpumem_slice_shrink(nullptr, 1, nullptr); }},
      {"release", [] { return gpumem_slice_release(nullptr, 1, 0, nullptr); }},
      {"set_in_use", [] { return gpumem_slice_set_in_use(nullptr, 1, nullptr); }},
      {"slice_close", [] { return gpumem_slice_close(nullptr); }},
      {"allocator_open", [] { return gpumem_allocator_open(nullptr, nullptr, &allocator); }},
      {"allocate", [] { return gpumem_allocate(nullptr, 1, nullptr, &address); }},
      {"allocate_placed", [] { return gpumem_allocate_placed(nullptr, 1, nullptr, nullptr, &address); }},
      {"deallocate", [] { return gpumem_deallocate(nullptr, 256, 1, nullptr); }},
      {"extend", [] { return gpumem_extend(nullptr, 256, 1, 2, nullptr); }},
      {"record_stream", [] { return gpumem_record_stream(nullptr, 256, nullptr); }},
      {"release_stream", [] { return gpumem_release_stream(nullptr, nullptr); }},
      {"synchronize", [] { return gpumem_synchronize(nullptr, nullptr); }},
      {"tag", [] { return gpumem_tag(nullptr, "name", &tag); }},
      {"trim", [] { return gpumem_allocator_trim(nullptr, 1, nullptr); }},
      {"statistics", [] { return gpumem_allocator_statistics(nullptr, &statistics); }},
      {"reset_peaks", [] { return gpumem_allocator_reset_peaks(nullptr); }},
      {"size_classes", [] { return gpumem_allocator_size_classes(nullptr, no_size_class, nullptr); }},
      {"snapshot", [] { return gpumem_allocator_snapshot(nullptr, no_block, nullptr); }},
      {"allocator_close", [] { return gpumem_allocator_close(nullptr); }},
      {"destroy", [] { return gpumem_allocator_destroy(nullptr); }},
      {"default_session", [] { return gpumem_default_session(nullptr); }},
      {"default_allocator", [] { return gpumem_default_allocator(0, nullptr); }}};
  return kCalls;
}

TEST(WithoutHandle, EveryCallIsAnError) {
  for (const auto& [name, call] : calls_without_a_handle()) {
    EXPECT_EQ(call(), GPUMEM_INVALID_ARGUMENT) << name;
    EXPECT_NE(std::string(gpumem_last_error()).find("NULL"), std::string::npos)
        << name << ": " << gpumem_last_error();
  }
}

TEST(WithoutHandle, ConstantsAreNothingAndItIsSaid) {
  EXPECT_EQ(gpumem_session_id(nullptr), 0U);
  EXPECT_EQ(gpumem_session_tenant(nullptr), nullptr);
  EXPECT_EQ(gpumem_session_driver_folder(nullptr), nullptr);
  EXPECT_STREQ(gpumem_last_error(), "session is NULL");
  EXPECT_EQ(gpumem_slice_base(nullptr) + gpumem_slice_limit(nullptr) + gpumem_slice_granularity(nullptr), 0U);
  EXPECT_EQ(gpumem_slice_committed(nullptr), 0U);
  EXPECT_EQ(gpumem_slice_device(nullptr), nullptr);
  EXPECT_EQ(gpumem_slice_ordinal(nullptr), -1);
  EXPECT_STREQ(gpumem_last_error(), "slice is NULL");
  EXPECT_EQ(gpumem_allocator_limit(nullptr) + gpumem_allocator_granularity(nullptr), 0U);
  EXPECT_EQ(gpumem_allocator_device(nullptr), nullptr);
  EXPECT_EQ(gpumem_allocator_ordinal(nullptr), -1);
  EXPECT_STREQ(gpumem_last_error(), "allocator is NULL");
}

TEST(WithoutHandle, FreeingDoesNothing) {
  gpumem_session_free(nullptr);
  gpumem_slice_free(nullptr);
  gpumem_allocator_free(nullptr);
  gpumem_canceller_free(nullptr);
}

// A caller that gives a context away need not check whether the call worked.
TEST(WithoutHandle, AContextThatWasGivenAwayIsReleased) {
  int released = 0;
  const gpumem_release release = [](void* context) { ++*static_cast<int*>(context); };
  EXPECT_EQ(gpumem_session_on_pressure_owned(nullptr, nullptr, &released, release), GPUMEM_INVALID_ARGUMENT);
  EXPECT_EQ(released, 1);
}

TEST(WithoutBroker, ConnectingSaysWhereItLooked) {
  gpumem_session_options options = GPUMEM_SESSION_OPTIONS_INIT;
  options.runtime_folder = "/nowhere";
  gpumem_session* session = nullptr;
  EXPECT_EQ(gpumem_session_connect(&options, &session), GPUMEM_UNAVAILABLE);
  EXPECT_EQ(session, nullptr);
  EXPECT_NE(std::string(gpumem_last_error()).find("/nowhere"), std::string::npos) << gpumem_last_error();
}

TEST(WithoutBroker, WrongOptionsAreToldFirst) {
  gpumem_session* session = nullptr;
  gpumem_session_options options = GPUMEM_SESSION_OPTIONS_INIT;
  options.timeout_ms = -1;
  EXPECT_EQ(gpumem_session_connect(&options, &session), GPUMEM_INVALID_ARGUMENT);
  EXPECT_NE(std::string(gpumem_last_error()).find("timeout_ms"), std::string::npos) << gpumem_last_error();
  options = {};
  EXPECT_EQ(gpumem_session_connect(&options, &session), GPUMEM_INVALID_ARGUMENT) << "struct_size was not set";
}

// The process's own, in the folder that the environment names.
TEST(WithoutBroker, TheProcesssOwnAllocatorSaysSoAndPyTorchIsTold) {
  ::setenv("GPUMEM_RUNTIME_DIR", "/nowhere", 1);
  gpumem_allocator* allocator = nullptr;
  EXPECT_EQ(gpumem_default_allocator(0, &allocator), GPUMEM_UNAVAILABLE);
  EXPECT_EQ(allocator, nullptr);
  EXPECT_EQ(gpumem_default_allocator(-1, &allocator), GPUMEM_NOT_FOUND);
  EXPECT_EQ(gpumem_default_allocator(1'000, &allocator), GPUMEM_NOT_FOUND);
  EXPECT_EQ(gpumem_torch_alloc(0, 0, nullptr), nullptr);
  try {
    (void)gpumem_torch_alloc(4096, 0, nullptr);
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    const std::string words = error.what();
    EXPECT_NE(words.find("4KiB on device 0: UNAVAILABLE"), std::string::npos) << words;
    EXPECT_NE(words.find("/nowhere"), std::string::npos) << words;
  }
}

}  // namespace

// The words of faults, times and cost profiles.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/control/control_time.h"
#include "sim/control/costs.h"
#include "sim/control/faults.h"

namespace gpumem::sim::test {
namespace {

using namespace std::chrono_literals;

TEST(FaultText, SaysWhatHappensToWhichCalls) {
  EXPECT_EQ(parse_fault("cuMemCreate fail OUT_OF_MEMORY nth 3").value(),
            (Fault{.call = "cuMemCreate", .from = 3, .until = 3, .error = 2}));
  EXPECT_EQ(parse_fault("cuMemMap delay 5ms probability 0.1 pid 1234 seed 9").value(),
            (Fault{.call = "cuMemMap", .pid = 1234, .probability = 0.1, .seed = 9, .delay = 5ms}));
  EXPECT_EQ(parse_fault(" cuMemSetAccess  kill\tfrom 2 ").value(),
            (Fault{.call = "cuMemSetAccess", .from = 2, .kill = true}));
  EXPECT_EQ(parse_fault("nvmlDeviceGetMemoryInfo fail 999").value(),
            (Fault{.call = "nvmlDeviceGetMemoryInfo", .error = 999}));
  EXPECT_EQ(parse_fault("cuMem* times 4 delay 1.5us fail CUDA_ERROR_INVALID_VALUE").value(),
            (Fault{.call = "cuMem*", .times = 4, .error = 1, .delay = 1500ns}));
}

TEST(FaultText, NamesOfErrorsAreThoseOfTheCallsLibrary) {
  EXPECT_EQ(parse_fault("cuInit fail NOT_SUPPORTED").value().error, 801);
  EXPECT_EQ(parse_fault("cuInit fail CUDA_ERROR_UNKNOWN").value().error, 999);
  EXPECT_EQ(parse_fault("nvmlInit fail NOT_SUPPORTED").value().error, 3);
  EXPECT_EQ(parse_fault("nvmlInit fail NVML_ERROR_GPU_IS_LOST").value().error, 15);
  EXPECT_FALSE(parse_fault("nvmlInit fail CUDA_ERROR_OUT_OF_MEMORY").has_value());
  EXPECT_FALSE(parse_fault("cuInit fail GPU_IS_LOST").has_value());
}

TEST(FaultText, IsReadAsItIsWritten) {
  for (const char* text :
       {"cuMemCreate fail OUT_OF_MEMORY nth 3", "cuMemMap delay 5ms probability 0.5 seed 9 pid 1234",
        "cuMemSetAccess kill from 2 times 7", "nvmlInit fail 12345", "cu* fail UNKNOWN delay 1.5us"}) {
    EXPECT_EQ(to_string(parse_fault(text).value()), text);
  }
}

TEST(FaultText, BadOnesAreRefusedWithWhatIsWanted) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "wanted is CALL"},
      {"MemCreate kill", "no driver call"},
      {"cuMemCreate", "does nothing"},
      {"cuMemCreate nth 3", "does nothing"},
      {"cuMemCreate fail", "wanted is the name"},
      {"cuMemCreate fail SUCCESS", "wanted is the name"},
      {"cuMemCreate fail 0", "not 0"},
      {"cuMemCreate fail -1", "not 0"},
      {"cuMemCreate fail OUT_OF_MEMROY", "CUDA_ERROR_OUT_OF_MEMORY"},
      {"cuMemCreate explode", "'explode' is no part"},
      {"cuMemCreate delay 5", "a time above 0"},
      {"cuMemCreate delay 0s", "a time above 0"},
      {"cuMemCreate kill kill", "twice"},
      {"cuMemCreate kill nth 0", "at least 1"},
      {"cuMemCreate kill nth 3x", "at least 1"},
      {"cuMemCreate kill nth 1 from 1", "neither with from"},
      {"cuMemCreate kill nth 1 times 1", "neither with from"},
      {"cuMemCreate kill fail 2", "not both"},
      {"cuMemCreate kill probability 1.5", "at most 1"},
      {"cuMemCreate kill probability 0", "above 0"},
      {"cuMemCreate kill probability nan", "above 0"},
      {"cuMemCreate kill pid 0", "at least 1"},
      {"cuMem*Create kill", "star"},
      {"cuMem** kill", "star"},
  };
  for (const auto& [text, wanted] : bad) {
    const auto parsed = parse_fault(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find(wanted), std::string::npos)
        << text << ": " << parsed.error().message;
  }
  EXPECT_FALSE(parse_fault("cu" + std::string(62, 'x') + " kill").has_value());
  EXPECT_TRUE(parse_fault("cu" + std::string(61, 'x') + " kill").has_value());
}

TEST(FaultText, CallMeansItsVersionsAndStreamVariants) {
  for (const char* name :
       {"cuMemAlloc", "cuMemAlloc_v2", "cuMemAlloc_v2_ptds", "cuMemAlloc_ptsz", "cuMemAlloc_v12"})
    EXPECT_TRUE(call_matches("cuMemAlloc", name)) << name;
  for (const char* name :
       {"cuMemAllocAsync", "cuMemAllo", "cuMemAlloc_v2x", "cuMemAlloc_x", "xcuMemAlloc", ""})
    EXPECT_FALSE(call_matches("cuMemAlloc", name)) << name;
  EXPECT_TRUE(call_matches("cuMemAlloc_v2", "cuMemAlloc_v2_ptsz"));
  EXPECT_FALSE(call_matches("cuMemAlloc_v2", "cuMemAlloc"));
  EXPECT_TRUE(call_matches("cuMem*", "cuMemAllocAsync"));
  EXPECT_TRUE(call_matches("nvmlInit", "nvmlInit_v2"));
  EXPECT_FALSE(call_matches("cuMem*", "cuInit"));
}

TEST(TimeText, HasANumberAndAUnit) {
  EXPECT_EQ(parse_time("193us").value(), 193us);
  EXPECT_EQ(parse_time("1.5ms").value(), 1500us);
  EXPECT_EQ(parse_time("218.4ns").value(), Picoseconds(218'400));
  EXPECT_EQ(parse_time("0.0001ns").value(), Picoseconds(0));
  EXPECT_EQ(parse_time("0s").value(), 0s);
  for (const char* bad : {"", "5", "us", "-1us", "1.us", ".5us", "1..5us", "1.2.3us", "1 us", "1usx", "1h",
                          "86401s", "99999999999999999999s"}) {
    EXPECT_FALSE(parse_time(bad).has_value()) << bad;
  }
}

TEST(TimeText, IsReadAsItIsWritten) {
  for (const char* text : {"0s", "1s", "1.5ms", "218.4ns", "193us", "7ps", "86400s"})
    EXPECT_EQ(to_string(parse_time(text).value()), text);
}

TEST(CostProfile, HasALineForEachCall) {
  const auto profile = parse_costs("# comment\n\ncuMemCreate 193us 1.5us  # source\n  cuMemMap 1500ns\n");
  EXPECT_EQ(profile.value(), (CostProfile{{"cuMemCreate", 193us, Picoseconds(1'500'000)},
                                          {"cuMemMap", 1500ns, Picoseconds(0)}}));
  EXPECT_TRUE(parse_costs("").value().empty());
}

TEST(CostProfile, BadLineIsNamed) {
  for (const char* bad : {"cuMemMap", "cuMemMap fast", "cuMemMap 1us 2us 3us", "memmap 1us", "cuMemMap 1us 2",
                          "cu*Map 1us", "cuMemCreate 2us"}) {
    const auto refused = parse_costs("cuMemCreate 1us\n" + std::string(bad) + "\n");
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_EQ(refused.error().message.find("line 2: "), 0U) << refused.error().message;
  }
}

TEST(CostProfile, ShippedOnesAreGood) {
  for (const char* name : {"h200", "a100"}) {
    const auto profile = load_costs(std::string(SIM_LIBRARIES "/costs/") + name + ".costs");
    ASSERT_TRUE(profile.has_value()) << profile.error().message;
    for (const char* call :
         {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemcpyHtoD", "cuMemcpyDtoD"}) {
      EXPECT_TRUE(std::ranges::any_of(*profile, [&](const Cost& cost) { return cost.call == call; }))
          << name << " lacks " << call;
    }
  }
}

TEST(CostProfile, ThatIsNotThereIsRefused) {
  const auto missing = load_costs("./no-such.costs");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace gpumem::sim::test

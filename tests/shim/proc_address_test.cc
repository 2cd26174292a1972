// cuGetProcAddress through the shim: the driver's own answer, but for the calls that the shim replaces.
#include <cuda.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "client/shim/undeclared.h"
#include "tests/shim/fixture.h"

namespace gpumem::shim::test {
namespace {

using ShimProcAddress = ShimTest;
using Status = CUdriverProcAddressQueryResult;
using LookUp = decltype(::cuGetProcAddress_v2);

constexpr cuuint64_t kFlags[] = {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};

/// Every base name of the header, and since which version it stands for which name.
struct Version {
  const char* base;
  int since;
  const char* name;
};
constexpr Version kVersions[] = {
#include "versions.inc"
};

constexpr const char* kReplaced[] = {
#define GPUMEM_SHIM_CALL(name, treatment, why) #name,
#include "client/shim/calls.def"
#undef GPUMEM_SHIM_CALL
};

struct Answer {
  CUresult result;
  void* address;
  int status;
  bool operator==(const Answer&) const = default;
};

Answer ask(LookUp* look_up, const char* name, int version, cuuint64_t flags) {
  Answer answer{CUDA_SUCCESS, nullptr, -1};
  Status status = static_cast<Status>(3);  // none that is answered
  answer.result = look_up(name, &answer.address, version, flags, &status);
  answer.status = status;
  return answer;
}

/// The shim's function for each of the driver's that it replaces.
std::map<void*, void*> replacements(const Opened& shim, const Opened& driver) {
  std::map<void*, void*> all;
  for (const char* name : kReplaced) {
    EXPECT_EQ(file_of(shim.find(name)), shim_folder() / "libcuda.so.1") << name;
    if (void* const real = driver.find(name); real != nullptr) all.emplace(real, shim.find(name));
  }
  return all;
}

// A name alone says too little: the version and the stream decide which function it is. No kind of name is
// left out.
TEST_F(ShimProcAddress, EveryNameVersionAndStreamIsTheDriversFunctionOrItsReplacement) {
  with_both([](const Opened& shim, const Opened& driver) {
    auto* const ours = shim.get<LookUp>("cuGetProcAddress_v2");
    auto* const theirs = driver.get<LookUp>("cuGetProcAddress_v2");
    const std::map<void*, void*> replaced = replacements(shim, driver);
    std::set<void*> seen;
    for (const Version& version : kVersions) {
      for (const int asked : {version.since - 10, version.since, CUDA_VERSION}) {
        for (const cuuint64_t flags : kFlags) {
          Answer wanted = ask(theirs, version.base, asked, flags);
          const auto found = replaced.find(wanted.address);
          if (found != replaced.end()) seen.insert(wanted.address = found->second);
          EXPECT_EQ(ask(ours, version.base, asked, flags), wanted)
              << version.base << " " << asked << " " << flags;
        }
      }
    }
    EXPECT_FALSE(seen.empty());
    for (const auto& [real, replacement] : replaced) {
      EXPECT_TRUE(seen.contains(replacement)) << "the replacement of " << real << " is never handed out";
    }
  });
}

TEST_F(ShimProcAddress, TheLookUpOfThePerThreadStreamFindsThatStreamsFunctions) {
  with_both([](const Opened& shim, const Opened&) {
    auto* const look_up = shim.get<LookUp>("cuGetProcAddress_v2");
    auto* const per_thread = shim.get<LookUp>("cuGetProcAddress_v2_ptsz");
    auto* const per_thread_v1 = shim.get<decltype(::cuGetProcAddress)>("cuGetProcAddress_ptsz");
    const Answer own =
        ask(look_up, "cuMemcpyHtoDAsync", CUDA_VERSION, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    EXPECT_EQ(ask(per_thread, "cuMemcpyHtoDAsync", CUDA_VERSION, 0), own);
    EXPECT_EQ(ask(per_thread, "cuMemcpyHtoDAsync", CUDA_VERSION, CU_GET_PROC_ADDRESS_LEGACY_STREAM),
              ask(look_up, "cuMemcpyHtoDAsync", CUDA_VERSION, CU_GET_PROC_ADDRESS_LEGACY_STREAM));
    void* found = nullptr;
    EXPECT_EQ(per_thread_v1("cuMemcpyHtoDAsync", &found, CUDA_VERSION, 0), CUDA_SUCCESS);
    EXPECT_EQ(found, own.address);
  });
}

TEST_F(ShimProcAddress, TheStatusIsWrittenWhereOneIsWanted) {
  with_both([](const Opened& shim, const Opened&) {
    auto* const look_up = shim.get<LookUp>("cuGetProcAddress_v2");
    EXPECT_EQ(ask(look_up, "cuMemCreate", CUDA_VERSION, 0).status, CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_EQ(ask(look_up, "cuGetProcAddress", CUDA_VERSION, 0).status, CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_EQ(ask(look_up, "cuMemCreate", 9000, 0).status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(ask(look_up, "cuNoSuchCall", CUDA_VERSION, 0).status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    void* found = nullptr;
    EXPECT_EQ(look_up("cuMemCreate", &found, CUDA_VERSION, 0, nullptr), CUDA_SUCCESS);
    EXPECT_NE(found, nullptr);
  });
}

TEST_F(ShimProcAddress, WhatIsNotAskedProperlyIsAnsweredAsByTheDriver) {
  with_both([](const Opened& shim, const Opened& driver) {
    auto* const ours = shim.get<LookUp>("cuGetProcAddress_v2");
    auto* const theirs = driver.get<LookUp>("cuGetProcAddress_v2");
    for (const char* name : {"", static_cast<const char*>(nullptr), "cuInit_v9", "malloc"}) {
      EXPECT_EQ(ask(ours, name, CUDA_VERSION, 0), ask(theirs, name, CUDA_VERSION, 0))
          << (name ? name : "null");
    }
    EXPECT_EQ(ask(ours, "cuInit", CUDA_VERSION + 1000, 0), ask(theirs, "cuInit", CUDA_VERSION + 1000, 0));
    EXPECT_EQ(ask(ours, "cuInit", CUDA_VERSION, 1ULL << 40), ask(theirs, "cuInit", CUDA_VERSION, 1ULL << 40));
    Status status{};
    EXPECT_EQ(ours("cuInit", nullptr, CUDA_VERSION, 0, &status),
              theirs("cuInit", nullptr, CUDA_VERSION, 0, &status));
  });
}

TEST_F(ShimProcAddress, ADriverOfCuda11IsAskedInItsOwnForm) {
  in_process([] {
    ::setenv("GPUMEM_REAL_LIBCUDA", SHIM_TEST_OLD_DRIVER, 1);
    const Opened shim(shim_folder() / "libcuda.so.1");
    auto* const look_up = shim.get<LookUp>("cuGetProcAddress_v2");
    const Answer launch = ask(look_up, "cuLaunchKernel", 11080, 0);
    EXPECT_EQ(launch.result, CUDA_SUCCESS);
    EXPECT_EQ(launch.status, CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_EQ(file_of(launch.address), std::filesystem::path(SHIM_TEST_OLD_DRIVER) / "libcuda.so.1");
    const Answer unknown = ask(look_up, "cuNoSuchCall", 11080, 0);
    EXPECT_EQ(unknown, (Answer{CUDA_SUCCESS, nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND}));
    EXPECT_EQ(ask(look_up, "cuLaunchKernel", 13000, 0).result, CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(ShimProcAddress, ALookUpThatTheDriverDoesNotExportIsStillTheShims) {
  in_process([] {
    ::setenv("GPUMEM_REAL_LIBCUDA", SHIM_TEST_OLD_DRIVER, 1);
    const Opened shim(shim_folder() / "libcuda.so.1");
    auto* const look_up = shim.get<decltype(::cuGetProcAddress)>("cuGetProcAddress");
    void* found = nullptr;
    EXPECT_EQ(look_up("cuGetProcAddress", &found, 11030, CU_GET_PROC_ADDRESS_DEFAULT), CUDA_SUCCESS);
    EXPECT_EQ(found, shim.find("cuGetProcAddress"));
    EXPECT_EQ(look_up("cuGetProcAddress", &found, 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
              CUDA_SUCCESS);
    EXPECT_EQ(found, shim.find("cuGetProcAddress_ptsz"));
  });
}

}  // namespace
}  // namespace gpumem::shim::test

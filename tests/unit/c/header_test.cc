#include "tests/unit/c/header.h"

#include <gtest/gtest.h>

#include "gpumem.h"
#include "gpumem/allocator.h"
#include "gpumem/result.h"

namespace gpumem::c_abi {
namespace {

TEST(Header, MeansTheSameToCAndCpp) {
  const std::size_t in_cpp[] = GPUMEM_TEST_STRUCT_SIZES;
  for (std::size_t i = 0; i < std::size(in_cpp); ++i) EXPECT_EQ(struct_sizes_in_c()[i], in_cpp[i]) << i;
}

TEST(Header, MacrosSetTheSizesOfTheirStructs) {
  EXPECT_EQ(sum_of_sizes_set_by_macros(), sizeof(gpumem_session_options) + sizeof(gpumem_slice_options) +
                                              sizeof(gpumem_grow_options) + sizeof(gpumem_allocator_options) +
                                              sizeof(gpumem_placement) + sizeof(gpumem_statistics) +
                                              sizeof(gpumem_denial) + sizeof(gpumem_grow_step) +
                                              sizeof(gpumem_job_options) + sizeof(gpumem_job_account));
}

// A program that was compiled before must find what it knew where it was.
TEST(Header, StructsKeepTheLayoutOfVersion0) {
  EXPECT_EQ(offsetof(gpumem_session_options, timeout_ms), 24U);
  EXPECT_EQ(offsetof(gpumem_usage, pressure_deadline_ms), 72U);
  EXPECT_EQ(offsetof(gpumem_pressure, deadline_ms), 24U);
  EXPECT_EQ(offsetof(gpumem_slice_options, trim_on_pressure), 32U);
  EXPECT_EQ(offsetof(gpumem_grow_options, least), 16U);
  EXPECT_EQ(offsetof(gpumem_allocator_options, idle_ms), 40U);
  EXPECT_EQ(offsetof(gpumem_placement, room), 16U);
  EXPECT_EQ(offsetof(gpumem_statistics, given_back), 120U);
  EXPECT_EQ(offsetof(gpumem_size_class, cache_hits), 32U);
  EXPECT_EQ(offsetof(gpumem_block, tag), 48U);
  EXPECT_EQ(offsetof(gpumem_denial, soonest_why), 176U);
  EXPECT_EQ(offsetof(gpumem_holder, tenant), 48U);
  EXPECT_EQ(offsetof(gpumem_grow_step, committed), 32U);
  EXPECT_EQ(offsetof(gpumem_job_options, host_limit_points), 40U);
  EXPECT_EQ(offsetof(gpumem_job_account, denied), 24U);
}

TEST(Header, StatusesAreTheCodesOfResult) {
  const std::pair<int, Code> statuses[] = {{GPUMEM_CANCELLED, Code::kCancelled},
                                           {GPUMEM_INVALID_ARGUMENT, Code::kInvalidArgument},
                                           {GPUMEM_DEADLINE_EXCEEDED, Code::kDeadlineExceeded},
                                           {GPUMEM_NOT_FOUND, Code::kNotFound},
                                           {GPUMEM_ALREADY_EXISTS, Code::kAlreadyExists},
                                           {GPUMEM_PERMISSION_DENIED, Code::kPermissionDenied},
                                           {GPUMEM_RESOURCE_EXHAUSTED, Code::kResourceExhausted},
                                           {GPUMEM_FAILED_PRECONDITION, Code::kFailedPrecondition},
                                           {GPUMEM_ABORTED, Code::kAborted},
                                           {GPUMEM_INTERNAL, Code::kInternal},
                                           {GPUMEM_UNAVAILABLE, Code::kUnavailable},
                                           {GPUMEM_UNAUTHENTICATED, Code::kUnauthenticated}};
  for (const auto& [status, code] : statuses) {
    EXPECT_EQ(status, static_cast<int>(code));
    EXPECT_EQ(gpumem_status_name(status), code_name(code));
  }
  EXPECT_STREQ(gpumem_status_name(GPUMEM_OK), "OK");
  EXPECT_STREQ(gpumem_status_name(-1), "UNKNOWN");
  EXPECT_EQ(GPUMEM_UNKNOWN_SIZE, Allocator::kUnknownSize.count);
  EXPECT_STREQ(gpumem_version(), GPUMEM_VERSION);
}

}  // namespace
}  // namespace gpumem::c_abi

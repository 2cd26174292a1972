// gpumem::memory_resource against libcu++'s own concepts, of whatever version is there.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda/version>

#include <cstdio>

#include "gpumem/memory_resource.h"

using gpumem::memory_resource;

static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<memory_resource, cuda::mr::host_accessible>);

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::synchronous_resource<memory_resource>);
static_assert(std::is_constructible_v<cuda::mr::resource_ref<cuda::mr::device_accessible>, memory_resource&>);
#else
static_assert(cuda::mr::async_resource<memory_resource>);
static_assert(
    std::is_constructible_v<cuda::mr::async_resource_ref<cuda::mr::device_accessible>, memory_resource&>);
#endif

int main() { std::printf("a resource of libcu++ %d\n", CCCL_VERSION); }

// What streams are set to. It changes nothing here and is told again.
#include <cuda.h>

#include <cstring>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {
namespace {

// Numbers of CUlaunchAttributeID that streams know; older headers lack the last ones.
constexpr int kAccessPolicy = 1, kSynchronization = 3, kPriority = 8, kDomainMap = 9, kDomain = 10,
              kLinkScheduling = 16;

bool is_known(int attribute) {
  return attribute == kAccessPolicy || attribute == kSynchronization || attribute == kPriority ||
         attribute == kDomainMap || attribute == kDomain || attribute == kLinkScheduling;
}

CUstreamAttrValue default_of(const Stream& stream, int attribute) {
  CUstreamAttrValue value{};
  if (attribute == kSynchronization) value.syncPolicy = CU_SYNC_POLICY_AUTO;
  if (attribute == kPriority) std::memcpy(&value, &options_of(stream).priority, sizeof(int));
  constexpr unsigned char kTwoDomains[] = {0, 1};  // the default one's and the remote one's number
  if (attribute == kDomainMap) std::memcpy(&value, kTwoDomains, sizeof kTwoDomains);
  return value;
}

/// Looks `stream` up for `act(driver, stream)`.
template <class Act>
CUresult with_stream(CUstream stream, Act act) {
  Call driver;
  if (!driver) return driver.error();
  StreamRef found;
  const CUresult result = driver->stream(stream, &found);
  return result == CUDA_SUCCESS ? act(driver, *found) : result;
}

}  // namespace

CUresult api::cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute,
                                   const CUstreamAttrValue* value) {
  return with_stream(stream, [&](Call&, Stream& found) {
    if (value == nullptr || !is_known(attribute)) return CUDA_ERROR_INVALID_VALUE;
    attributes_of(found)[attribute] = *value;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  return with_stream(stream, [&](Call&, Stream& found) {
    if (value == nullptr || !is_known(attribute)) return CUDA_ERROR_INVALID_VALUE;
    const auto set = attributes_of(found).find(attribute);
    *value = set == attributes_of(found).end() ? default_of(found, attribute) : set->second;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuStreamCopyAttributes(CUstream to, CUstream from) {
  return with_stream(to, [&](Call& driver, Stream& target) {
    StreamRef source;
    if (const CUresult result = driver->stream(from, &source); result != CUDA_SUCCESS) return result;
    attributes_of(target) = attributes_of(*source);
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim

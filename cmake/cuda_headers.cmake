# cuda.h and nvml.h as gpumem::cuda_headers. Only the headers are used: the driver is opened at run time.
# Looked for in this order: GPUMEM_CUDA_INCLUDE, an installed toolkit, the folder where `./dev setup`
# unpacks the headers from NVIDIA's own Python packages.
set(GPUMEM_CUDA_INCLUDE "" CACHE PATH "Folder that holds cuda.h, cudaTypedefs.h and nvml.h")

find_path(GPUMEM_CUDA_H cuda.h
  HINTS ${GPUMEM_CUDA_INCLUDE} $ENV{CUDA_PATH}/include /usr/local/cuda/include
        /usr/local/cuda/targets/x86_64-linux/include ${PROJECT_SOURCE_DIR}/.cache/cuda/include)
find_path(GPUMEM_NVML_H nvml.h
  HINTS ${GPUMEM_CUDA_INCLUDE} ${GPUMEM_CUDA_H} ${PROJECT_SOURCE_DIR}/.cache/cuda/include)
if(NOT GPUMEM_CUDA_H OR NOT GPUMEM_NVML_H OR NOT EXISTS ${GPUMEM_CUDA_H}/cudaTypedefs.h)
  message(FATAL_ERROR
    "cuda.h, with cudaTypedefs.h beside it, and nvml.h were not found. Any one of these mends it:\n"
    "  * run `./dev setup`: it unpacks them from NVIDIA's Python packages into .cache/cuda\n"
    "  * install the CUDA Toolkit, 11.8 or newer\n"
    "  * give their folder: cmake -DGPUMEM_CUDA_INCLUDE=/path/to/include")
endif()

file(STRINGS ${GPUMEM_CUDA_H}/cuda.h version_line REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+" GPUMEM_CUDA_VERSION "${version_line}")
if(GPUMEM_CUDA_VERSION LESS 11080)
  message(FATAL_ERROR "${GPUMEM_CUDA_H}/cuda.h is of CUDA ${GPUMEM_CUDA_VERSION}; 11.8 (11080) or newer is needed.")
endif()
message(STATUS "CUDA headers ${GPUMEM_CUDA_VERSION}: ${GPUMEM_CUDA_H}")

add_library(gpumem_cuda_headers INTERFACE)
add_library(gpumem::cuda_headers ALIAS gpumem_cuda_headers)
target_include_directories(gpumem_cuda_headers SYSTEM INTERFACE ${GPUMEM_CUDA_H} ${GPUMEM_NVML_H})

#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of gpumem.h's structs in the order of the header, as the including language sees them. */
#define GPUMEM_TEST_STRUCT_SIZES                                                                      \
  {                                                                                                   \
    sizeof(gpumem_session_options), sizeof(gpumem_usage), sizeof(gpumem_pressure),                    \
        sizeof(gpumem_slice_options), sizeof(gpumem_grow_options), sizeof(gpumem_allocator_options),  \
        sizeof(gpumem_placement), sizeof(gpumem_statistics), sizeof(gpumem_size_class),               \
        sizeof(gpumem_block), sizeof(gpumem_denial), sizeof(gpumem_holder), sizeof(gpumem_grow_step), \
        sizeof(gpumem_job_options), sizeof(gpumem_job_account), sizeof(gpumem_status), sizeof(bool)   \
  }

/* Of structs initialised by their macros, in C. */
size_t sum_of_sizes_set_by_macros(void);
/* GPUMEM_TEST_STRUCT_SIZES as C sees it. */
const size_t* struct_sizes_in_c(void);

#ifdef __cplusplus
}
#endif

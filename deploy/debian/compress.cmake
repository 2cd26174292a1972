# Compresses man pages and changelogs in what CPack is about to pack, without a time in them.
file(GLOB_RECURSE found ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/*.[1-9]
     ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/doc/*/changelog*)
foreach(file IN LISTS found)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

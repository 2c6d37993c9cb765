"""The encoders: argv as pure functions, the process, its log.

`libvvenc` and `libx265` are libraries inside ffmpeg (`library` is what they share). `vtm`, `hm` and `vvencapp` are
programs of the user's, each an `EncoderProgram` that `external` runs; `jvet` is what the test models share.
"""

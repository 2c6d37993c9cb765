"""Encoder back ends: pure functions return the arguments, and classes run the encoders and check the results.

`libvvenc`, `libx265`, `libkvazaar`, `libx264`, `libaom` and `libsvtav1` code with encoder libraries inside ffmpeg;
`codecnn.codec.ffmpeg` has their common parts, `av1` those of the two AV1 encoders. `unfiltered` and `av1_unfiltered`
provide the reconstruction before the in-loop filters.
`external` runs VTM, HM, vvencapp or vvencFFapp of the user; `program_arguments` has their command lines.

To add an encoder of ffmpeg:

1. Write a module with a function that maps `CodecSettings` to the encoder's parameters, a function that returns the
   ffmpeg command (like `encode_argv` of `libvvenc`), and a parser that converts the log or statistics to
   `CodedPicture`s. These are pure functions, and the tests compare the complete command.
2. Write a class with the methods of `codecnn.codec.Codec`. It runs the command, decodes with
   `codecnn.codec.ffmpeg.decode_stream`, and calls the `verify_*` functions of `codecnn.codec.checks`.
3. Register the class in `BUNDLED` of `codecnn.codec.registry`.

To add a program of the user: write its arguments as a function of `Job`, and register an `EncoderProgram` in
`EXTERNAL`.
"""

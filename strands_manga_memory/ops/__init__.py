"""The operator's wing: what the command line uses and a running agent does not.

``doctor`` checks a deployment, ``cost`` and ``advice`` plan one, ``importing`` and ``exporting`` bring sessions in and out;
``cloudformation`` and ``permissions`` print what is set up elsewhere. Nothing that an agent runs imports it.
"""

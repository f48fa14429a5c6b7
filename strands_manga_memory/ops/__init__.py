"""Tools for operators of a deployment, which the command line offers. A running agent imports none of them.

``doctor`` checks a deployment. ``cost`` and ``advice`` help to plan one. ``importing`` imports users and sessions.
``inspection`` shows a stored conversation. ``provisioning`` returns templates and permissions for the setup.
"""

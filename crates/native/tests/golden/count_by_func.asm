uprobe0: 42 instructions
10000000  push rbp
10000001  mov rbp,rsp
10000004  sub rsp,10h
10000008  lea rsi,[40C100h]
1000000f  mov rsi,[rsi+8]
10000013  cmp rsi,0
10000017  jne 00000000100000B2h
1000001d  mov rax,[rdi+0A8h]
10000024  mov [rbp-8],eax
10000027  lea rdi,[1180h]
1000002e  mov rsi,rbp
10000031  add rsi,0FFFFFFFFFFFFFFF8h
10000035  mov eax,[rsi]
10000037  cmp eax,100h
1000003d  jae 0000000010000076h
10000043  imul rax,8
1000004a  mov r9d,fs:[0FFFFFFFFFFFFFF64h]
10000053  cmp r9d,4
10000057  sbb r11d,r11d
1000005a  and r9d,r11d
1000005d  imul r9,800h
10000064  add rax,r9
10000067  lea r11,[1200h]
1000006e  add rax,r11
10000071  jmp 0000000010000078h
10000076  xor eax,eax
10000078  mov rdi,rax
1000007b  cmp rax,0
1000007f  je 0000000010000098h
10000085  mov esi,1
1000008a  lock add [rdi],rsi
1000008e  mov eax,0
10000093  jmp 00000000100000B7h
10000098  lea rdi,[40C1C0h]
1000009f  mov esi,1
100000a4  lock add [rdi],rsi
100000a8  mov eax,0
100000ad  jmp 00000000100000B7h
100000b2  mov eax,0
100000b7  add rsp,10h
100000bb  pop rbp
100000bc  ret

